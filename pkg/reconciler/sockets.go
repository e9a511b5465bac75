package reconciler

import (
	"errors"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// tellSockets tells the clients of backends that are gone, beside the loop: by now the maps are
// right, so that a client which connects again reaches another backend. What is lost meanwhile
// is told next, all at once. The first call is for what an agent lost that died before it had
// told all.
func (r *Reconciler) tellSockets() {
	if r.cannotDestroy {
		r.lost = nil
	}
	if r.telling || r.toldAll && len(r.lost) == 0 {
		return
	}
	var losses []plan.Loss
	if r.toldAll {
		losses, r.lost = r.lost, nil
	}
	r.telling, r.toldAll = true, true
	r.beside.start(func() func() bool {
		err := r.dp.DestroySockets(losses)
		return func() bool {
			r.told(err)
			return false
		}
	})
}

// told goes on with what was lost while sockets were told.
func (r *Reconciler) told(err error) {
	r.telling = false
	if err != nil {
		r.cannotDestroy = errors.Is(err, errors.ErrUnsupported)
		r.log.Warn("close sockets of removed backends", zap.Error(err))
	}
	r.tellSockets()
}
