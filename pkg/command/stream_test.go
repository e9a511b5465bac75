package command

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// thing is one of a list.
type thing struct {
	Name string            `json:"name"`
	Size int               `json:"size"`
	Of   []string          `json:"of"`
	Has  map[string]uint64 `json:"has,omitempty"`
}

// streamOf is a Stream of things.
func streamOf(all []thing) *Stream {
	return &Stream{
		Kind: "Thing",
		Each: func(do func(any) error) error {
			for _, one := range all {
				if err := do(one); err != nil {
					return err
				}
			}
			return nil
		},
		Rows: func(one any, do func([]string)) {
			do([]string{one.(thing).Name, fmt.Sprint(one.(thing).Size)})
			for _, of := range one.(thing).Of {
				do([]string{"", of})
			}
		},
		Name: func(one any) string { return "thing/" + one.(thing).Name },
	}
}

// forms are those that an Output prints.
var forms = map[string]Output{
	"text": {}, "json in a line": {JSON: true}, "pretty": {Pretty: true}, "json": {format: formatJSON}, "yaml": {format: formatYAML}, "name": {format: formatName},
	"jsonpath": {format: formatJSONPath + "{.kind} {.items[*].name} {.items[-1].has}"},
}

func TestAStreamIsPrintedAsAListIs(t *testing.T) {
	many := []thing{{Name: "no", Of: []string{}}, {Name: "<x> \x1b[2J: é", Size: 4711000, Of: []string{"y", "- z"}, Has: map[string]uint64{"b": 1, "a": 1 << 60}}}
	for i := range 2*yamlAtOnce + 1 {
		many = append(many, thing{Name: fmt.Sprint("thing-", i), Size: i})
	}
	for what, all := range map[string][]thing{"none": nil, "one": many[:1], "two": many[:2], "as many as are encoded at once": many[:yamlAtOnce], "many": many} {
		for form, o := range forms {
			header := []string{"NAME", "SIZE"}
			s := streamOf(all)
			list := Table{Header: header, Value: ListOf("Thing", all)}
			for _, one := range all {
				list.Names = append(list.Names, s.Name(one))
				s.Rows(one, func(row []string) { list.Rows = append(list.Rows, row) })
			}
			var want, got strings.Builder
			if err := o.Print(&want, list); err != nil {
				t.Fatal(err)
			}
			if err := o.Print(&got, Table{Header: header, Stream: s}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Errorf("%s, %s (-list +stream):\n%s", what, form, diff)
			}
		}
	}
}

func TestOfAStreamThatCannotBeReadNothingIsPrinted(t *testing.T) {
	for form, o := range forms {
		s := streamOf(nil)
		s.Each = func(do func(any) error) error {
			if err := do(thing{Name: "a"}); err != nil {
				return err
			}
			return io.ErrUnexpectedEOF
		}
		var out strings.Builder
		if err := o.Print(&out, Table{Stream: s}); err != io.ErrUnexpectedEOF || out.String() != "" {
			t.Errorf("%s: %v, printed is %q", form, err, out.String())
		}
	}
}

// What people read is kept until it is known how wide columns are, and a path may name anything.
func TestWhatIsPrintedOfAStreamIsLetGo(t *testing.T) {
	const things, size = 300, 100_000
	for _, form := range []string{"json", "pretty", "yaml", "name"} {
		var begin, most uint64
		s := streamOf(nil)
		s.Each = func(do func(any) error) error {
			for i := range things {
				if err := do(thing{Name: strings.Repeat("x", size)}); err != nil {
					return err
				}
				if i%yamlAtOnce == 0 {
					var m runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&m)
					if i == 0 {
						begin = m.HeapAlloc
					}
					most = max(most, m.HeapAlloc)
				}
			}
			return nil
		}
		if err := forms[form].Print(io.Discard, Table{Stream: s}); err != nil {
			t.Fatal(err)
		}
		if more := most - begin; more > things*size/2 {
			t.Errorf("%s: %d bytes are kept of %d, after the first %d things", form, more, things*size, yamlAtOnce)
		}
	}
}
