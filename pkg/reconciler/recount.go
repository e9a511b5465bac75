package reconciler

import "go.uber.org/zap"

// recounter is a datapath that counts the connections in flight of backends, and
// can correct what it missed.
type recounter interface {
	// Recount counts anew, and returns how many backends it corrected.
	Recount() (corrected int, err error)
}

// recount corrects the connections in flight. Services do not depend on it.
func (r *Reconciler) recount() {
	dp, ok := r.dp.(recounter)
	if !ok {
		return
	}
	corrected, err := dp.Recount()
	if err != nil {
		r.log.Warn("recount connections in flight", zap.Error(err))
	}
	if corrected > 0 {
		r.log.Debug("corrected connections in flight", zap.Int("backends", corrected))
	}
}
