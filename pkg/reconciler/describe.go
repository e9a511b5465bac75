package reconciler

import (
	"context"
	"errors"

	"github.com/headgate/headgate/pkg/lb"
)

// Describe returns what sources and operators say of all backends, once everything that they say
// is in the kernel.
func (i *Inbox) Describe(ctx context.Context) (all lb.Descriptions, err error) {
	asked := i.ask(ctx, lb.Drained{}, func(r *Reconciler) bool {
		if !r.isReady() {
			err = errNotReady
			return false
		}
		all = r.state.Describe()
		return false
	})
	return all, errors.Join(asked, err)
}
