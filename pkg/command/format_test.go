package command

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

var some = ListOf("Thing", []map[string]any{
	{"name": "a", "size": 4711000, "of": []string{"x", "y"}, "m/n": true},
	{"name": "b", "size": 1.5},
})

func TestAValueIsPrintedInTheFormThatIsAskedFor(t *testing.T) {
	for form, want := range map[string]string{
		"yaml":                                                   "apiVersion: headgate.dev/v1alpha1\nitems:\n- m/n: true\n  name: a\n  of:\n  - x\n  - \"y\"\n  size: 4711000\n- name: b\n  size: 1.5\nkind: ThingList\n",
		"name":                                                   "thing/a\nthing/b\n",
		"jsonpath=.kind":                                         "ThingList\n",
		"jsonpath=kind":                                          "ThingList\n",
		"jsonpath={$.items[*].name}":                             "a b\n",
		"jsonpath={.items[0].size}":                              "4711000\n",
		"jsonpath={.items[-1].size}":                             "1.5\n",
		"jsonpath={.items[7].size}":                              "",
		"jsonpath={.items[0].of}":                                `["x","y"]` + "\n",
		"jsonpath={.items[0]['m/n']}":                            "true\n",
		"jsonpath={.items.none}":                                 "",
		`jsonpath={.items[?(@.name=="b")].size}`:                 "1.5\n",
		`jsonpath={.items[?(@.name != 'b')].name}`:               "a\n",
		"jsonpath={.items[?(@.size>1.5)].name}":                  "a\n",
		"jsonpath={.items[?(@.size >= 1.5)].name}":               "a b\n",
		"jsonpath={.items[?(@.size<4711000)].name}":              "b\n",
		"jsonpath={.items[?(@.size<=4711000)].name}":             "a b\n",
		"jsonpath={.items[?(@['m/n']==true)].name}":              "a\n",
		"jsonpath={.items[?(@['m/n']!=false)].name}":             "a\n",
		"jsonpath={.items[?(@['m/n']==false)].name}":             "",
		"jsonpath={.items[?(@.of)].name}":                        "a\n",
		`jsonpath={.items[?(@.of[*]=="y")].name}`:                "a\n",
		`jsonpath={.items[?(@.size=="b")].name}`:                 "",
		`jsonpath={range .items[?(@.name=="b")]}<{.size}>{end}`:  "<1.5>\n",
		`jsonpath={.items[?(@.size!="b")].name}`:                 "a b\n",
		`jsonpath={.items[?(@.name>"a")].name}`:                  "b\n",
		`jsonpath={range .items[*]}{@.name}={.size}{"\t"}{end}.`: "a=4711000\tb=1.5\t.\n",
	} {
		var o Output
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFormat(flags)
		if err := flags.Parse([]string{"-o", form}); err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		var out strings.Builder
		if err := o.Print(&out, Table{Value: some, Names: []string{"thing/a", "thing/b"}}); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("-o %s (-want +got):\n%s", form, diff)
		}
	}
}

func TestAFormThatThereIsNotIsRefused(t *testing.T) {
	for _, form := range []string{"xml", "", "jsonpath", "jsonpath=", "jsonpath={.a", "jsonpath={range .a}x", "jsonpath={.a}{end}", "jsonpath={.a[?(@.b=1)]}", "jsonpath={.a[?(@.b==c)]}", "jsonpath={.a[?(@..b==1)]}", "jsonpath={.a[?(.b==1)]}", "jsonpath={..a}"} {
		var f format
		if err := f.Set(form); err == nil {
			t.Errorf("%q is taken", form)
		}
	}
}

func TestLinesKeepTheirColumnsAsTheyCome(t *testing.T) {
	var l Lines
	var out strings.Builder
	for _, row := range [][]string{{"A", "B"}, {"long", "é\x1b"}, {"a", "b", "gone"}} {
		if err := l.Write(&out, row); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff("A  B\nlong  é\na     b   gone\n", out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// FuzzPath reads any template: it is refused or printed, and nothing else.
func FuzzPath(f *testing.F) {
	f.Add("{range .items[*]}{@.name}{'x'}{end}")
	f.Add(".a[-1]['b'].*")
	f.Fuzz(func(t *testing.T, template string) {
		p, err := parsePath(template)
		if err != nil {
			return
		}
		p.print(map[string]any{"items": []any{map[string]any{"name": "a"}}})
	})
}

// FuzzYAML prints values as YAML that reads back as they were.
func FuzzYAML(f *testing.F) {
	f.Add("no", "a: b\n- c", "1.5")
	f.Add("0x1f", "~", "<x> # é\u2028\x7f\u0085\ufeff")
	f.Fuzz(func(t *testing.T, key, one, two string) {
		for _, text := range []string{key, one, two} {
			if !utf8.ValidString(text) {
				return // it is none in JSON either
			}
		}
		value := map[string]any{"l" + key: []any{one, []any{two, []any{}}, map[string]any{"b": one, "a": map[string]any{}}}, key: two}
		var out strings.Builder
		if err := (Output{format: formatYAML}).printValue(&out, value); err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
		if diff := cmp.Diff(value, back); diff != "" {
			t.Errorf("YAML (-want +got):\n%s\n%s", diff, out.String())
		}
	})
}
