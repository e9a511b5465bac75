package reconciler

import (
	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// grace is a grace period that is over.
type grace struct {
	since plan.Mark
	err   error
}

// waitGrace waits for a grace period. It takes as long as some ten changes,
// which need not wait for it: so it is not for Run itself.
func (r *Reconciler) waitGrace(since plan.Mark, passed chan<- grace) {
	passed <- grace{since, r.dp.Grace()}
}

// sweep has cleared what was retired before a grace period, and gives the room
// to those who wait for some.
func (r *Reconciler) sweep(g grace) {
	if g.err != nil && !r.graceFailed {
		r.log.Warn("wait for the grace period of removed entries, will try again", zap.Error(g.err))
	}
	if r.graceFailed = g.err != nil; r.graceFailed {
		return
	}
	r.pending = append(r.pending, r.planner.SweepTo(g.since)...)
	r.planWaiting()
	r.report()
}
