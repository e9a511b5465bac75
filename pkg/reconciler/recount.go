package reconciler

import (
	"time"

	"go.uber.org/zap"
)

// recounter is a datapath that counts the connections in flight of backends, and
// can correct what it missed.
type recounter interface {
	// Recount counts anew, and returns how many backends it corrected. It may be called
	// while another call is under way.
	Recount() (corrected int, err error)
}

// recount corrects the connections in flight, beside the loop: on a node with many it takes as
// long as hundreds of changes. Services do not depend on it.
func (r *Reconciler) recount(now time.Time) {
	dp, ok := r.dp.(recounter)
	if !ok || r.recounting || now.Sub(r.recounted) < recountEvery-lookEvery/2 {
		return
	}
	r.recounting, r.recounted = true, now
	r.beside.start(func() func() bool {
		corrected, err := dp.Recount()
		return func() bool {
			r.recounting = false
			r.sayRecounted(corrected, err)
			return false
		}
	})
}

func (r *Reconciler) sayRecounted(corrected int, err error) {
	if err != nil {
		r.log.Warn("recount connections in flight", zap.Error(err))
	}
	if corrected > 0 {
		r.log.Debug("corrected connections in flight", zap.Int("backends", corrected))
	}
}
