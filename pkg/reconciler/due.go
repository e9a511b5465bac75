package reconciler

import (
	"time"

	"github.com/headgate/headgate/pkg/tick"
)

// How long things wait.
const (
	standEvery   = time.Second             // connections of backends with failures are looked for
	lookEvery    = 2 * time.Second         // it is looked whether programs are in force
	recountEvery = 30 * time.Second        // connections in flight are counted anew
	sweepAfter   = time.Second             // from when something retires until its grace period begins
	lingerFor    = 2100 * time.Millisecond // for which connections of a deleted Service go on: it may be made again within two seconds
	firstRetry   = 100 * time.Millisecond
	lastRetry    = 30 * time.Second
)

// due is what the loop does when it is time.
type due struct {
	sweep, retry, drained, tell *time.Timer   // running where there is something to do
	leftOut, gone               *time.Timer   // the same
	look, stand                 *time.Timer   // running always
	wait                        time.Duration // before the next retry
}

func newDue() due {
	return due{
		sweep: newTimer(), retry: newTimer(), drained: newTimer(), tell: newTimer(), leftOut: newTimer(), gone: newTimer(),
		look: time.NewTimer(tick.Next(lookEvery)), stand: time.NewTimer(tick.Next(standEvery)), wait: firstRetry,
	}
}

// newTimer returns a timer that is not running.
func newTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (d *due) stop() {
	for _, t := range []*time.Timer{d.sweep, d.retry, d.drained, d.tell, d.leftOut, d.gone, d.look, d.stand} {
		t.Stop()
	}
}

// tryAgain has what failed tried again.
func (d *due) tryAgain() { d.retry.Reset(d.wait) }

// retryLater has the try after this one wait longer.
func (d *due) retryLater() { d.wait = min(2*d.wait, lastRetry) }

// succeeded ends the retries.
func (d *due) succeeded() {
	d.retry.Stop()
	d.wait = firstRetry
}
