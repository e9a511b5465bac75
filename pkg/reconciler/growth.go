package reconciler

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Growth of maps takes as long as a thousand changes, nearly all of it in the kernel's verifier. So
// it begins ahead of need, beside the loop, and no change waits for it but for the last step.

// preparer is a datapath that can have larger maps at hand for Reserve.
type preparer interface {
	// Prepare prepares maps of at least these sizes. It may be called while another call is
	// under way.
	Prepare(plan.Sizes) error
}

// ahead is the growth ahead of need. The zero value is none.
type ahead struct {
	preparing bool
	sizes     plan.Sizes // that are prepared, and not in use yet
	failed    error      // of the last try
	next      time.Time  // not before is the next one
}

// isCrowded says whether there is little room in the maps, with what waits for a sweep.
func (r *Reconciler) isCrowded() bool { return !r.planner.NeedsAhead().Fit(r.dp.Sizes()) }

// waitsForSweep says whether changes wait for the sweep that makes room, which is shorter than growth.
func (r *Reconciler) waitsForSweep() bool {
	return r.isReady() && !r.graceFailed && r.sweepRefused == 0 && r.planner.IsFullUntilSwept(r.dp.Sizes())
}

// growAhead has larger maps prepared where there is little room even if what waits for a sweep
// goes.
func (r *Reconciler) growAhead(now time.Time) {
	dp, ok := r.dp.(preparer)
	a := &r.ahead
	if !ok || a.preparing || !r.isReady() {
		return
	}
	if !r.isCrowded() {
		a.failed = nil
		return
	}
	sizes := r.planner.NeedsAheadOnceSwept()
	if now.Before(a.next) || sizes.Fit(r.dp.Sizes()) {
		return
	}
	a.preparing = true
	r.beside.start(func() func() bool {
		err := dp.Prepare(sizes)
		return func() bool { return r.prepared(sizes, err) }
	})
}

// prepared has larger maps used once they are at hand, or prepared again later.
func (r *Reconciler) prepared(sizes plan.Sizes, err error) bool {
	a := &r.ahead
	a.preparing = false
	if err != nil {
		r.cannotGrow(err)
		return true
	}
	a.failed, a.sizes = nil, sizes
	return true
}

// cannotGrow puts growth off that nothing waits for.
func (r *Reconciler) cannotGrow(err error) {
	r.ahead.failed, r.ahead.next = err, time.Now().Add(lastRetry)
	r.log.Warn("make larger maps ahead of need, will try again", zap.Duration("after", lastRetry), zap.Error(err))
}

// problem says what keeps larger maps from being prepared.
func (a *ahead) problem() (p lb.Problem, failed bool) {
	if a.failed == nil {
		return p, false
	}
	return lb.Problem{
		Scope: lb.ScopeNode, Object: "the maps",
		Reason: fmt.Sprintf("cannot grow: %s; Services stay in force, and there is little room for more", a.failed),
		Remedy: "give the node memory that the kernel can lock; it is tried again every " + lastRetry.String(),
	}, true
}

// reserve makes room for what is planned, and puts larger maps in use that are prepared: where these
// are refused, what there is room for goes on.
func (r *Reconciler) reserve() error {
	needs, room := r.planner.Needs(), r.dp.Sizes()
	fits, ahead := needs.Fit(room), r.ahead.sizes
	if !fits && !r.ahead.preparing {
		needs = r.planner.NeedsAhead()
	}
	r.ahead.sizes = plan.Sizes{}
	if err := r.dp.Reserve(needs.AtLeast(ahead)); err != nil {
		switch {
		case !fits:
			return noRoom{err}
		case ahead == (plan.Sizes{}):
			return err
		}
		r.cannotGrow(err)
	}
	r.planner.SetRoom(r.dp.Sizes())
	if r.dp.Sizes() != room { // while programs were replaced, each counted in its own maps
		r.recounted = time.Time{}
	}
	return nil
}
