package reconciler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// forgetAfter is how long a backend has to be gone before nobody remembers that it was drained:
// the next pod with its address is another one. It may move from slice to slice meanwhile.
const forgetAfter = time.Minute

// outOfUse is what an operator has taken out of use, and for how long it is kept in mind.
type outOfUse struct {
	keep   func(lb.Drained) error // for the next agent, before it is in force
	gone   map[lb.AddrPort]time.Time
	looked time.Time
}

// KeepDrained says what is drained at first, and who keeps it for the next agent. It is for the
// time before Run.
func (r *Reconciler) KeepDrained(d lb.Drained, keep func(lb.Drained) error) {
	r.outOfUse.keep = keep
	r.state.SetDrained(d)
}

// DrainResult is what was drained, or is in use again.
type DrainResult struct {
	Backends []string `json:"backends"` // that Services have now
	Drained  []string `json:"drained"`  // everything, from now on
	// Alone are the Service ports whose clients have no backend left.
	Alone []string `json:"alone"`
}

// Drain has backends get no new connections, and waits until that is in the kernel. What leaves a
// Service port without backends is refused unless it is forced. So is what other nodes carry here. Nothing is done where begin fails, which is called
// between two changes, right before.
func (i *Inbox) Drain(ctx context.Context, begin func() error, d lb.Drained, forced bool) (out DrainResult, err error) {
	asked := i.ask(ctx, d, func(r *Reconciler) bool {
		if err = begin(); err == nil {
			out, err = r.drain(d, forced)
		}
		return err == nil
	})
	return out, errors.Join(asked, err)
}

// Undrain gives them connections again, and waits as Drain does.
func (i *Inbox) Undrain(ctx context.Context, begin func() error, d lb.Drained) (out DrainResult, err error) {
	asked := i.ask(ctx, d, func(r *Reconciler) bool {
		if err = begin(); err == nil {
			out, err = r.undrain(d)
		}
		return err == nil
	})
	return out, errors.Join(asked, err)
}

func (r *Reconciler) drain(d lb.Drained, forced bool) (DrainResult, error) {
	if !r.isReady() {
		return DrainResult{}, errNotReady
	}
	out := r.drainResult(d)
	if len(out.Backends) == 0 {
		return out, fmt.Errorf("no Service has backends that are %s: headgate backend list shows them", strings.Join(d.Words(), ", "))
	}
	if out.Alone = append(out.Alone, r.state.LeftAlone(d)...); len(out.Alone) > 0 && !forced {
		return out, fmt.Errorf("no other backend is left to clients of %s: they would be refused; drain it all the same with --force", strings.Join(out.Alone, ", "))
	}
	if carried := r.state.CarriedHere(d); len(carried) > 0 && !forced {
		return out, fmt.Errorf("other nodes carry packets of %s to it here (DSR), and would lose new connections: drain it on all other nodes first, then here with --force", strings.Join(carried, ", "))
	}
	return out, r.setDrained(r.state.Drained().With(d), &out)
}

func (r *Reconciler) undrain(d lb.Drained) (DrainResult, error) {
	if !r.isReady() {
		return DrainResult{}, errNotReady
	}
	was := r.state.Drained()
	if not := d.Without(was).Words(); len(not) > 0 {
		return DrainResult{}, fmt.Errorf("%s: is not drained; headgate drain shows what is", strings.Join(not, ", "))
	}
	out := r.drainResult(d)
	return out, r.setDrained(was.Without(d), &out)
}

func (r *Reconciler) drainResult(d lb.Drained) DrainResult {
	out := DrainResult{Backends: []string{}, Alone: []string{}}
	for _, b := range r.state.Find(d) {
		out.Backends = append(out.Backends, b.String())
	}
	return out
}

// setDrained keeps what is drained from now on, and plans what changes by that. Where it cannot
// be kept nothing changes: an agent that starts would know nothing of it.
func (r *Reconciler) setDrained(d lb.Drained, out *DrainResult) error {
	if r.outOfUse.keep == nil {
		return errors.New("there is no --state-dir, in which it would outlive the agent")
	}
	if err := r.outOfUse.keep(d); err != nil {
		return fmt.Errorf("keep what is drained for the next agent: %w", err)
	}
	r.wait(r.state.SetDrained(d))
	out.Drained = d.Words()
	r.planWaiting()
	r.log.Info("drained", zap.Strings("backends", out.Drained))
	return nil
}

// forgetDrained ends what is drained and has been gone for a while, looking twice a minute. Before
// the first picture, and while something cannot be read, nobody knows what is gone.
func (r *Reconciler) forgetDrained(now time.Time) {
	d := r.state.Drained()
	unknown := !r.isReady() || r.input.Partial || len(r.input.FrozenEndpoints) > 0
	if unknown || len(d.Backends) == 0 || now.Sub(r.outOfUse.looked) < forgetAfter/2 {
		return
	}
	r.outOfUse.looked = now
	missing, old := r.state.Missing(d), lb.Drained{Backends: map[lb.AddrPort]bool{}}
	gone := map[lb.AddrPort]time.Time{}
	for b := range missing.Backends {
		since, known := r.outOfUse.gone[b]
		if !known {
			since = now
		}
		gone[b] = since
		old.Backends[b] = now.Sub(since) >= forgetAfter
	}
	r.outOfUse.gone = gone
	for b, is := range old.Backends {
		if !is {
			delete(old.Backends, b)
		}
	}
	if old.IsEmpty() {
		return
	}
	if err := r.setDrained(d.Without(old), &DrainResult{}); err != nil {
		r.log.Warn("forget drained backends that are gone", zap.Strings("backends", old.Words()), zap.Error(err))
	}
}
