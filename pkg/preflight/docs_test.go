package preflight

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/tests/testenv"
)

var update = flag.Bool("update", false, "write the table of findings into docs/check.md")

// page has the table of findings between two lines.
const (
	page  = "../../docs/check.md"
	begin = "<!-- findings: go test ./pkg/preflight -update -->\n"
	end   = "<!-- end of findings -->\n"
)

func TestThePageHasTheTableOfFindings(t *testing.T) {
	testenv.MustHave(t, page, begin, tableOfFindings(), end, *update)
}

func tableOfFindings() string {
	var b strings.Builder
	b.WriteString("| finding | level | what it means | what to do |\n|---|---|---|---|\n")
	for _, k := range Kinds() {
		remedy := k.Remedy
		if remedy == "" {
			remedy = "the line says it"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Level, k.Means, remedy)
	}
	return b.String()
}

func TestEveryKindOfFindingIsSaidInFull(t *testing.T) {
	seen := map[string]bool{}
	for i, k := range Kinds() {
		switch {
		case k.Name == "" || seen[k.Name]:
			t.Errorf("kind %d has the name %q, or another one has it", i, k.Name)
		case k.Level != Warning && k.Level != Failure:
			t.Errorf("%s has the level %q", k.Name, k.Level)
		case !strings.HasSuffix(k.Means, ".") || strings.HasSuffix(k.Remedy, "."):
			t.Errorf("%s: a meaning is a sentence and a remedy a phrase: %q, %q", k.Name, k.Means, k.Remedy)
		}
		seen[k.Name] = true
	}
}
