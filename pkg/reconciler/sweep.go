package reconciler

import (
	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// sweepSoon has what retired cleared: at once where others want its room. A sweep that is due
// stays due: were it put off by every change, maps would grow for as long as there are changes.
func (r *Reconciler) sweepSoon() {
	switch {
	case r.gracing:
	case r.putOff.some || r.planner.Retired() > 0 && !r.graceFailed && r.sweepRefused == 0 && (r.isCrowded() || r.planner.HasMuchRetired(r.dp.Sizes())):
		r.due.sweep.Reset(0)
		r.sweeping = true
	case r.planner.Retired() > 0 && !r.sweeping:
		r.due.sweep.Reset(max(sweepAfter, r.sweepRefused))
		r.sweeping = true
	}
}

// beginSweep begins the grace period of what has retired. That takes as long as some ten
// changes, which need not wait for it.
func (r *Reconciler) beginSweep() {
	if r.sweeping = len(r.pending.ops) == 0; !r.sweeping { // what is gone may still be named
		return
	}
	planner, since := r.planner, r.planner.Mark()
	r.gracing = true
	r.beside.start(func() func() bool {
		err := r.dp.Grace()
		return func() bool {
			r.sweeping, r.gracing = false, false
			r.sweep(planner, since, err)
			return true
		}
	})
}

// sweep has cleared what was retired before a grace period, and gives the room
// to those who wait for some.
func (r *Reconciler) sweep(planner *plan.Planner, since plan.Mark, err error) {
	if err != nil && !r.graceFailed {
		r.log.Warn("wait for the grace period of removed entries, will try again", zap.Error(err))
	}
	if r.graceFailed = err != nil; !r.graceFailed && planner == r.planner { // else the mark is that of a planner before, see planAnew
		r.pending.add(owner{sweep: true}, r.planner.SweepTo(since))
	}
	r.putOff.sweeps--
	r.planWaiting()
}
