package agent

import (
	"runtime/debug"
	"testing"
)

func TestGarbageIsCollectedSoonerUnlessTheEnvironmentSaysWhen(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct {
		gogc, limit string
		want        int
	}{
		{"", "", garbage}, {"200", "", 100}, {"", "1GiB", 100},
	} {
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.limit)
		collectGarbage()
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: collected at %d percent, want %d", c.gogc, c.limit, got, c.want)
		}
	}
}
