package preflight

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// wantFound compares what was found, as lines of level, name and found.
func wantFound(tb testing.TB, r *Report, want ...string) {
	tb.Helper()
	var got []string
	for _, f := range r.Findings {
		got = append(got, string(f.Level)+" "+f.Name+": "+f.Found)
		if (f.Level == OK) != (f.Remedy == "") {
			tb.Errorf("%s: %s has the remedy %q", f.Level, f.Name, f.Remedy)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("findings (-want +got):\n%s", diff)
	}
}
