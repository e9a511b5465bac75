package tick

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDifferentPeriodsMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		begin := time.Now()
		for _, period := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
			at := begin.Add(Next(period))
			if !at.Equal(at.Truncate(period)) {
				t.Errorf("every %v the next tick is at %v", period, at)
			}
		}
	})
}

func TestATickThatCameEarlyDoesNotComeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(999 * time.Millisecond)
		if wait := Next(time.Second); wait != time.Second+time.Millisecond {
			t.Errorf("a millisecond before a tick the next one is in %v", wait)
		}
	})
}
