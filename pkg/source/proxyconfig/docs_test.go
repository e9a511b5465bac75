package proxyconfig

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/tests/testenv"
)

var update = flag.Bool("update", false, "write the table of settings into docs/kube-proxy.md")

// page has the table of settings between two lines.
const (
	page  = "../../../docs/kube-proxy.md"
	begin = "<!-- settings: go test ./pkg/source/proxyconfig -update -->\n"
	end   = "<!-- end of settings -->\n"
)

func TestThePageHasTheTableOfSettings(t *testing.T) {
	testenv.MustHave(t, page, begin, tableOfSettings(), end, *update)
}

func tableOfSettings() string {
	var b strings.Builder
	b.WriteString("| flag | field of the file | what becomes of it |\n|---|---|---|\n")
	for _, s := range Settings() {
		what := strings.ReplaceAll(s.Does, "\n", "; ")
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
