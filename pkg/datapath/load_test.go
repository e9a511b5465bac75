package datapath

import (
	"testing"
	"time"
)

func TestResponseTimesAreMeasurementsOrLowerBounds(t *testing.T) {
	now, err := coarseClock()
	if err != nil {
		t.Fatal(err)
	}
	word := func(us uint64, ago time.Duration, bits uint64) uint64 {
		tick := uint64(now-ago.Nanoseconds()) >> headgateResponseWordRESPONSE_NS_SHIFT
		return us | bits | tick<<headgateResponseWordRESPONSE_TICK_SHIFT
	}
	const bound = uint64(headgateResponseWordRESPONSE_AT_LEAST)
	for _, tc := range []struct {
		name    string
		words   [8]uint64
		want    time.Duration
		atLeast bool
	}{
		{name: "none"},
		{"a measurement", [8]uint64{word(1500, time.Minute, 0)}, 1500 * time.Microsecond, false},
		{"a client that gave up", [8]uint64{word(7, time.Minute, bound)}, 7 * time.Microsecond, true},
		{"the largest that a word has", [8]uint64{word(1<<20-1, time.Minute, 0)}, 1048575 * time.Microsecond, true},
		{"the last of two", [8]uint64{word(7, 2*time.Minute, bound), word(1500, time.Minute, 0)}, 1500 * time.Microsecond, false},
		{"the last of two, which gave up", [8]uint64{word(7, time.Minute, bound), word(1500, 2*time.Minute, 0)}, 7 * time.Microsecond, true},
	} {
		got, atLeast := lastResponse(&headgateBackend{Responses: tc.words})
		if got != tc.want || atLeast != tc.atLeast {
			t.Errorf("%s: %v, a lower bound: %v; want %v, %v", tc.name, got, atLeast, tc.want, tc.atLeast)
		}
	}
}
