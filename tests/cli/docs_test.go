package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the docs show of a command is what a script has it print.
func TestTheDocsShowWhatIsPrinted(t *testing.T) {
	for _, shown := range []struct{ page, command, script, file string }{
		{"../../docs/install.md", "headgate explain --from 100.64.0.9 203.0.113.20:80", "testdata/kernel/explain.txtar", "packet-range"},
	} {
		page, err := os.ReadFile(shown.page)
		if err != nil {
			t.Fatal(err)
		}
		_, block, _ := strings.Cut(string(page), "$ "+shown.command+"\n")
		block, _, _ = strings.Cut(block, "```")
		script, err := os.ReadFile(shown.script)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(script), "\n"+shown.command+" ") {
			t.Errorf("%s does not run %s", shown.script, shown.command)
		}
		_, printed, _ := strings.Cut(string(script), "-- "+shown.file+" --\n")
		printed, _, _ = strings.Cut(printed, "\n-- ")
		if diff := cmp.Diff(printed+"\n", block); diff != "" {
			t.Errorf("%s: %s (-prints +shows):\n%s", shown.page, shown.command, diff)
		}
	}
}
