package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheOOMScoreIsWrittenWhereOneIsAskedFor(t *testing.T) {
	zero, low := 0, -998
	for _, tc := range []struct {
		name  string
		score *int
		want  string
	}{{"none", nil, "100"}, {"0 is one", &zero, "0"}, {"below 0", &low, "-998"}} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "oom_score_adj")
			if err := os.WriteFile(file, []byte("100"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := setOOMScoreAdj(file, tc.score); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != tc.want {
				t.Errorf("the file has %q, %v, want %s", got, err, tc.want)
			}
		})
	}
	if err := setOOMScoreAdj(filepath.Join(t.TempDir(), "no", "file"), &low); err == nil {
		t.Error("a score that cannot be written is no error")
	}
}
