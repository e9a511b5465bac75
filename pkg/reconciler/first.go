package reconciler

import (
	"slices"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// The first picture of a large cluster is a million operations. So room is made as soon as it is known
// what Services ask for; while they are planned, programs are verified for that, and what is planned is
// written, in pieces: the operations are never all in memory.

// firstLarge is the number of Services, of which nothing is in force, from which on the first picture
// is large.
const firstLarge = 512

// pieceOps is how many operations are written together, at least.
const pieceOps = 8192

// loader is a datapath that can have the programs at hand for Attach.
type loader interface {
	// Load loads them for the maps as they are. It may be called while another call is under
	// way.
	Load() error
}

// pieces is a large first picture while it is planned. The zero value is none.
type pieces struct {
	some bool
	left chan left // of the piece that is being written, nil for none
}

// left is what of a piece could not be written, and why.
type left struct {
	pending
	err error
}

// beginFirst makes room for a first picture that is large. What fails here flush meets again, and tells.
func (r *Reconciler) beginFirst(names []lb.ServiceName) {
	if r.isReady() || r.pieces.some {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), r.planner.Has)
	if len(names) < firstLarge {
		return
	}
	if !r.planner.NeedsWith(names).Fit(r.dp.Sizes()) && r.dp.Reserve(r.planner.NeedsAheadWith(names)) != nil {
		return
	}
	r.pieces.some = true
	dp, ok := r.dp.(loader)
	if !ok {
		return
	}
	r.beside.start(func() func() bool {
		err := dp.Load()
		return func() bool {
			if err != nil {
				r.log.Debug("load programs while it is planned", zap.Error(err))
			}
			return false
		}
	})
}

// writePiece begins to write what is planned of a large first picture, where it is much. What is
// planned next may need what has been written, so that there is one piece at a time.
func (r *Reconciler) writePiece() {
	if !r.pieces.some || len(r.pending.ops) < pieceOps {
		return
	}
	if r.endPiece(); !r.pieces.some || r.reserve() != nil {
		r.pieces.some = false
		return
	}
	piece, done := r.pending, make(chan left, 1)
	r.pending, r.pieces.left = pending{}, done
	go func() {
		n, err := r.dp.Apply(piece.ops)
		piece.drop(n)
		done <- left{piece, err}
	}()
}

// endPiece waits until the piece is written. What fails is left to flush, with all that comes after it.
func (r *Reconciler) endPiece() {
	if r.pieces.left == nil {
		return
	}
	l := <-r.pieces.left
	if r.pieces.left = nil; l.err != nil {
		r.pieces.some = false
		l.append(r.pending)
		r.pending = l.pending
	}
}
