package proxyconfig

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of settings into docs/kube-proxy.md")

// page has the table of settings between two lines.
const (
	page  = "../../../docs/kube-proxy.md"
	begin = "<!-- settings: go test ./pkg/source/proxyconfig -update -->\n"
	end   = "<!-- end of settings -->\n"
)

func TestThePageHasTheTableOfSettings(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no lines %q and %q", page, begin, end)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+tableOfSettings()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(tableOfSettings(), have); diff != "" {
		t.Errorf("the table (-want +docs; run this test with -update):\n%s", diff)
	}
}

func tableOfSettings() string {
	var b strings.Builder
	b.WriteString("| flag | field of the file | what becomes of it |\n|---|---|---|\n")
	for _, s := range Settings() {
		what := s.Does
		switch {
		case what == "":
			what = "**no effect**: " + s.Why
		case s.Why != "":
			what += " (" + s.Why + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code("--", s.Flag), code("", s.Field), what)
	}
	return b.String()
}

func code(prefix, name string) string {
	if name == "" {
		return ""
	}
	return "`" + prefix + name + "`"
}
