package testenv

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// MustHave checks that a file has the wanted text between two others, which it has once; or
// writes it there, where it is to be updated.
func MustHave(tb testing.TB, file, begin, want, end string, update bool) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		tb.Fatalf("%s has no %q and %q", file, begin, end)
	}
	if update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		tb.Errorf("%s (-want +file; run this test with -update):\n%s", file, diff)
	}
}
