package reconciler

import "github.com/headgate/headgate/pkg/lb"

// Growth of maps takes as long as a thousand changes. So where many Services go and many come,
// those that come wait for the room of those that go: a grace period, which begins at once.

// putOff is what is not planned yet, for want of room. The zero value is nothing.
type putOff struct {
	some   bool
	sweeps int // that it still waits for
}

// withRoom returns the Services that are to be planned now: without those that have nothing
// in force, if there is room for them only after a sweep. They wait for one that begins after they
// came, whether or not that is enough.
func (r *Reconciler) withRoom(todo []lb.ServiceName, wanted map[lb.ServiceName][]lb.Frontend) []lb.ServiceName {
	if len(wanted) == 0 {
		return todo
	}
	now, added, going := r.divide(todo, wanted)
	waits := len(added) > 0 && r.isReady() && r.sweepRefused == 0 && (going || r.planner.Lingers() || r.planner.Retired() > 0) && !r.planner.NeedsWith(added).Fit(r.dp.Sizes())
	switch {
	case !waits || r.putOff.some && r.putOff.sweeps <= 0:
		r.putOff = putOff{}
		return todo
	case !r.putOff.some:
		r.putOff = putOff{some: true, sweeps: 1}
		if r.gracing {
			r.putOff.sweeps = 2
		}
	}
	return now
}

// endLingering ends what deleted Services keep: at once if others need the room, else in time also if
// they cannot be planned.
func (r *Reconciler) endLingering() {
	if r.planner.Lingers() {
		r.pending.add(owner{}, r.planner.EndLingering(r.putOff.some || r.isCrowded() || r.planner.MuchLingers(r.dp.Sizes())))
	}
}

// divide returns the Services apart that have nothing in force and take nothing that others have,
// and says whether any of the others goes.
func (r *Reconciler) divide(todo []lb.ServiceName, wanted map[lb.ServiceName][]lb.Frontend) (now, added []lb.ServiceName, going bool) {
	for _, name := range todo {
		wants, known := wanted[name]
		has := r.planner.Has(name)
		going = going || known && has && len(wants) == 0
		if !has && len(wants) > 0 && r.planner.AreFree(wants) {
			added = append(added, name)
		} else {
			now = append(now, name)
		}
	}
	return now, added, going
}
