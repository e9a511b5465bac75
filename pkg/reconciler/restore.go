package reconciler

import "time"

// restorer is a datapath that notices what somebody else takes out of force.
type restorer interface {
	// Restore puts back what is out of force, and returns what that was, what
	// could not be pinned, and what is out of force still.
	Restore() (restored []string, unpinned, outOfForce error)
}

// Force is how the programs of the node fare.
type Force struct {
	Restored   []string // were out of force and are put back just now
	Unpinned   error    // in force for as long as this process lives, nil for none
	OutOfForce error    // which are not, and why; nil for none
	Devices    error    // that programs could never be attached to, nil for none
}

// look does what is due from time to time.
func (r *Reconciler) look(now time.Time) {
	r.restore()
	r.recount(now)
	r.takeTraffic()
	r.growAhead(now)
	r.forgetDrained(now)
}

// restore puts back in force what somebody has taken away, and tells of it.
func (r *Reconciler) restore() {
	f := Force{Devices: r.deviceError}
	if dp, ok := r.dp.(restorer); ok {
		f.Restored, f.Unpinned, f.OutOfForce = dp.Restore()
	}
	r.observer.Force(f)
}
