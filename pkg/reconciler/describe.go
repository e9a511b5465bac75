package reconciler

import (
	"context"
	"errors"

	"github.com/headgate/headgate/pkg/lb"
)

// Describe returns what sources and operators say of backends, of all where nil is asked for, once everything
// that they say is in the kernel.
func (i *Inbox) Describe(ctx context.Context, asked *lb.Selection) (all lb.Descriptions, err error) {
	failed := i.ask(ctx, lb.Drained{}, func(r *Reconciler) bool {
		if !r.isReady() {
			err = errNotReady
			return false
		}
		all = r.state.Describe(asked)
		return false
	})
	return all, errors.Join(failed, err)
}
