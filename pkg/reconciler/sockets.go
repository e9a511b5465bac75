package reconciler

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// tellPause is how long losses are gathered while they come one after the other: looking through what is
// kept of all sockets for each of 1,000 changes a second would take as long as the changes. The first is told at once.
const tellPause = 30 * time.Millisecond

// tellSockets tells the clients of backends that are gone, beside the loop: by now the maps are
// right, so that a client which connects again reaches another backend. What is lost meanwhile
// is told next, all at once. The first call is for what an agent lost that died before it had
// told all.
func (r *Reconciler) tellSockets() {
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
			r.told(losses, err)
			return false
		}
	})
}

// told goes on with what was lost while sockets were told: after a pause, where they were told of losses.
func (r *Reconciler) told(losses []plan.Loss, err error) {
	if err != nil {
		cannot := errors.Is(err, errors.ErrUnsupported)
		if !cannot || !r.cannotDestroy {
			r.log.Warn("close sockets of removed backends", zap.Error(err))
		}
		r.cannotDestroy = cannot
	}
	if len(losses) == 0 {
		r.tellNext()
		return
	}
	r.due.tell.Reset(tellPause)
}

// tellNext ends the pause.
func (r *Reconciler) tellNext() {
	r.telling = false
	r.tellSockets()
}

// end finishes what runs beside the loop, and tells of all losses.
func (r *Reconciler) end() {
	r.beside.wait()
	if len(r.lost) > 0 {
		r.tellNext()
		r.beside.wait()
	}
}
