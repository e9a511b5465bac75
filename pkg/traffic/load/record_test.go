package load

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// An operation without an answer fails when its time is over. What went wrong did so when it was due.
func TestAFailureIsCountedWhenItEndsAndWhenItWasDue(t *testing.T) {
	const interval, timeout = 100 * time.Millisecond, 5 * time.Second
	r := newRecord(&Spec{Duration: time.Second, Interval: interval, Timeout: timeout})
	r.open(0)
	due := (3*interval + interval/2).Nanoseconds()
	r.fail(operation{due: due, could: due, began: due, ended: due + timeout.Nanoseconds()}, result.Timeout, errors.New("no end"))
	for i, p := range timeLine(&result.Run{Interval: interval}, []*record{r}) {
		at, due := time.Duration(i)*interval, uint64(0)
		if at == 3*interval {
			due = 1
		}
		failed := uint64(0)
		if at == 3*interval+timeout {
			failed = 1
		}
		if p.Due != due || p.DueFailed != due || p.Failed != failed {
			t.Errorf("at %s: %d due, of which %d failed, and %d failed then; want %d, %d, %d", at, p.Due, p.DueFailed, p.Failed, due, due, failed)
		}
	}
}
