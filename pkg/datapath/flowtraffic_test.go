package datapath

import (
	"testing"
	"time"
)

func TestTakingTrafficCostsLittle(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, c := range []struct {
		what     string
		cost     time.Duration
		passed   time.Duration
		packets  uint64
		wantsDue bool
	}{
		{"never", 0, 0, 1, true},
		{"a small table at rest", time.Millisecond, time.Second, 1, true},
		{"too soon", time.Millisecond, 999 * time.Millisecond, 1, false},
		{"a large table at rest", 11 * time.Millisecond, 10 * time.Second, 9_999, false},
		{"the same later", 11 * time.Millisecond, 11 * time.Second, 10_999, true},
		{"a large table with traffic", 11 * time.Millisecond, 2 * time.Second, 2_000, true},
		{"a little less of it", 11 * time.Millisecond, 2 * time.Second, 1_999, false},
		{"traffic, too soon", 11 * time.Millisecond, time.Second, 1_000_000, false},
	} {
		l := lastTaking{packets: 5, at: began, cost: c.cost}
		if got := l.isDue(began.Add(c.passed), 5+c.packets); got != c.wantsDue {
			t.Errorf("%s: due %v, want %v", c.what, got, c.wantsDue)
		}
	}
}
