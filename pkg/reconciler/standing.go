package reconciler

import "go.uber.org/zap"

// stander is a datapath that is not told of connections that stand, and finds them
// while they are news.
type stander interface {
	NoteStanding() error
}

// noteStanding has the connections noted that backends with failures took. Without it
// they are noted when they end.
func (r *Reconciler) noteStanding() {
	dp, ok := r.dp.(stander)
	if !ok {
		return
	}
	if err := dp.NoteStanding(); err != nil {
		r.log.Debug("look for connections of backends with failures", zap.Error(err))
	}
}
