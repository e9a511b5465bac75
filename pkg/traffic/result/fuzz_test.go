package result

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// FuzzCompare compares files of any content: an error, or a table, and never more
// work than the files are large.
func FuzzCompare(f *testing.F) {
	var good bytes.Buffer
	h := NewHistogram()
	h.Add(time.Millisecond)
	run := Run{Name: "a", Latency: h, Service: h, Elapsed: time.Second, Due: 1, Completed: 1}
	if err := (&Report{Schema: Schema, Runs: []Run{run, run}}).Write(&good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes(), good.Bytes())
	f.Add([]byte(`{`), []byte(`null`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		one, err := Read(bytes.NewReader(a))
		if err != nil {
			return
		}
		two, err := Read(bytes.NewReader(b))
		if err != nil {
			two = one
		}
		for _, pair := range [][2]*Report{{one, two}, {two, one}, {one, one}} {
			if err := Compare(pair[0], pair[1]).WriteTable(io.Discard); err != nil {
				t.Error(err)
			}
		}
		if err := one.WriteTable(io.Discard); err != nil {
			t.Error(err)
		}
	})
}

func TestANameIsOneLineOfAComparison(t *testing.T) {
	run := func(name string) *Report {
		h := NewHistogram()
		h.Add(time.Millisecond)
		var file bytes.Buffer
		r := Run{Name: name, Labels: map[string]string{"a\nforged label": "b\nforged value"}, Latency: h, Service: h, Elapsed: time.Second, Due: 1, Completed: 1}
		if err := (&Report{Schema: Schema, Runs: []Run{r}}).Write(&file); err != nil {
			t.Fatal(err)
		}
		report, err := Read(&file)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	var out bytes.Buffer
	for _, other := range []string{"a\nforged name", "b\x1b[2Jc"} {
		if err := Compare(run("a\nforged name"), run(other)).WriteTable(&out); err != nil {
			t.Fatal(err)
		}
	}
	if text := out.String(); strings.Contains(text, "\nforged") || strings.Contains(text, "\x1b") || !strings.Contains(text, "a forged name") {
		t.Errorf("the tables are\n%s", text)
	}
}
