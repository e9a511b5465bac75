package traffic

import (
	"testing"
	"time"
)

func TestABarIsAsLongAsItsShare(t *testing.T) {
	for _, tc := range []struct {
		name  string
		share float64
		want  string
	}{
		{"nothing has no bar", 0, ""},
		{"everything fills the width", 1, "████"},
		{"a half fills half", 0.5, "██"},
		{"a part of a character is drawn in eighths", 1.0 / 32, "▏"},
		{"seven eighths are drawn", 7.0 / 32, "▉"},
		{"more than everything stays within the width", 2, "████"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Bar(tc.share, 4); got != tc.want {
				t.Errorf("Bar(%v, 4) = %q, want %q", tc.share, got, tc.want)
			}
		})
	}
}

func TestFairBoundsWidenWhereFewChoicesWereMade(t *testing.T) {
	low, high := FairBounds(3, 5000)
	if low < 0.249 || low > 0.251 || high < 0.416 || high > 0.418 {
		t.Errorf("of 5000 choices: %v to %v, want 0.25 to 0.417", low, high)
	}
	low, high = FairBounds(3, 100)
	if low > 0.06 || high < 0.6 {
		t.Errorf("of 100 choices: %v to %v, want six standard deviations, 0.05 to 0.62", low, high)
	}
	if low, high = FairBounds(3, 0); low != 0 || high != 1 {
		t.Errorf("of no choices: %v to %v, want 0 to 1", low, high)
	}
}

func TestPercentilesCountEveryDuration(t *testing.T) {
	l := NewLatency()
	for i := range int64(100) {
		l.Add((i + 1) * 1000)
	}
	l.Add((time.Hour).Nanoseconds())
	for _, tc := range []struct {
		percentile float64
		want       time.Duration
	}{
		{50, 51 * time.Microsecond},
		{99, 100 * time.Microsecond},
		{100, 10 * time.Second}, // an hour counts as the longest there is
	} {
		got := l.Percentile(tc.percentile)
		if diff := (got - tc.want).Abs(); diff > tc.want/500 {
			t.Errorf("percentile %v is %s, want %s", tc.percentile, got, tc.want)
		}
	}
	if l.Count() != 101 {
		t.Errorf("count is %d, want 101", l.Count())
	}
}
