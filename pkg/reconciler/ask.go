package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// question is what somebody asks the loop, which answers between two changes: nothing is half
// done then.
type question struct {
	about    lb.Drained                       // what it changes
	answer   func(*Reconciler) (changed bool) // what is planned, as await has it
	answered chan struct{}                    // is closed once it is answered
	inForce  chan error                       // gets nil once what changed is in the kernel, or why it is not
}

// errEnds says that nobody will bring anything into the kernel any more.
var errEnds = errors.New("the agent ends")

// ask has the loop answer, and waits for that, and until what changed by it is in the kernel, or
// the context ends. With an error that may come later.
func (i *Inbox) ask(ctx context.Context, about lb.Drained, answer func(*Reconciler) (changed bool)) (err error) {
	q := question{about, answer, make(chan struct{}), make(chan error, 1)}
	select {
	case i.questions <- q:
		<-q.answered
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err = <-q.inForce:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("it is kept, but not in force yet: %w", err)
	}
	return nil
}

// hear answers a question.
func (r *Reconciler) hear(q question) (changed bool) {
	defer close(q.answered)
	if !q.answer(r) {
		q.inForce <- nil
		return false
	}
	r.heard = append(r.heard, q)
	return true
}

// sayInForce tells those who asked how it ended to bring what changed into the kernel. Who
// waits for a sweep hears of it after that.
func (r *Reconciler) sayInForce(err error) {
	r.heard = slices.DeleteFunc(r.heard, func(q question) bool {
		why := err
		if why == nil {
			why = r.hinders(q.about)
		}
		if errors.Is(why, plan.ErrLater) {
			return false
		}
		q.inForce <- why
		return true
	})
}

// hinders says why a Service that has one of these backends is not in force as it should be:
// plan.ErrLater until a sweep.
func (r *Reconciler) hinders(d lb.Drained) error {
	for _, name := range r.state.Having(d) {
		switch {
		case !r.waiting[name] || !r.planner.Has(name):
		case r.planner.Retired() > 0 && !r.frozen(name):
			return plan.ErrLater
		default:
			return fmt.Errorf("%s stays as it is; headgate status says why", name)
		}
	}
	return nil
}
