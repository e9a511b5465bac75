package clidocs_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

const (
	symptoms       = root + "/docs/troubleshooting.md"
	symptomsScript = root + "/tests/cli/testdata/kernel/troubleshooting.txtar"
)

var (
	// produced is a symptom's command, of a program of this version or the next one.
	produced = regexp.MustCompile(`(?m)^shows \d headgate(?:-next)? (.+)\ncmp stdout (\S+)$`)
	// onPage is where the page shows one.
	onPage = regexp.MustCompile("(?ms)^```\n\\$ headgate ([^\n]+)\n(.*?)^```$")
)

// Each symptom of the page is produced by a script, and what the page shows is what the
// command prints then.
func TestThePageOfSymptomsShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile(symptoms)
	if err != nil {
		t.Fatal(err)
	}
	printed := mustSymptoms(t)
	want := onPage.ReplaceAllStringFunc(string(page), func(block string) string {
		args := onPage.FindStringSubmatch(block)[1]
		if len(printed[args]) == 0 {
			t.Errorf("no symptom of the script is left to show %q for", args)
			return block
		}
		output := printed[args][0]
		if printed[args] = printed[args][1:]; len(printed[args]) == 0 {
			delete(printed, args)
		}
		return "```\n$ headgate " + args + "\n" + output + "```"
	})
	for _, args := range slices.Sorted(maps.Keys(printed)) {
		t.Errorf("docs/troubleshooting.md does not show headgate %s", args)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(symptoms, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(want, string(page)); diff != "" {
		t.Errorf("docs/troubleshooting.md (-script +page; run this test with -update):\n%s", diff)
	}
}

// mustSymptoms returns what commands print, in the order of the script.
func mustSymptoms(t *testing.T) map[string][]string {
	t.Helper()
	archive, err := txtar.ParseFile(symptomsScript)
	if err != nil {
		t.Fatal(err)
	}
	sections := sectionsOf(archive)
	out := map[string][]string{}
	for _, m := range produced.FindAllStringSubmatch(string(archive.Comment), -1) {
		args := strings.TrimSpace(variable.ReplaceAllString(m[1], ""))
		out[args] = append(out[args], sections[m[2]])
	}
	if len(out) == 0 {
		t.Fatalf("%s produces no symptom", symptomsScript)
	}
	return out
}

// sectionsOf returns the files of a script by name.
func sectionsOf(archive *txtar.Archive) map[string]string {
	out := map[string]string{}
	for _, f := range archive.Files {
		out[f.Name] = string(f.Data)
	}
	return out
}
