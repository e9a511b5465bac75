package reconciler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// An operation that fails stops those after it: they may use what it writes, and entries must not be used twice. So the
// reconciler plans anew from what the maps hold, as an agent does that starts, and leaves out the Service whose operation
// failed: what is in force of that Service stays, and the Service is tried again later.

// leftOut are the Services that are left out, and ofNode and ofPeers.
type leftOut map[lb.ServiceName]*refusal

// Names of what belongs to no Service: the operations on which no other depends, and the nodes that packets are carried to.
var ofNode, ofPeers = lb.ServiceName{}, lb.ServiceName{Name: "peers"}

// isService says whether a name is that of a Service, which has a namespace.
func isService(name lb.ServiceName) bool { return name.Namespace != "" }

// refusal is why a Service is left out, and until when.
type refusal struct {
	err   error
	until time.Time
	wait  time.Duration // before the next try
	ended bool          // it is to be planned again
	tried bool          // it was, and may not be written yet
}

// leftOutAtOnce bounds how often a flush plans anew; the next one goes on.
const leftOutAtOnce = 64

// longestRefusal bounds the time between two tries.
const longestRefusal = 10 * time.Minute

// planShare is which part of its time the reconciler plans anew at most, where Services are tried again and again: one in
// so many.
const planShare = 10

// has says whether a Service is left out now.
func (l leftOut) has(name lb.ServiceName) bool {
	out := l[name]
	return out != nil && !out.ended
}

// add leaves out a Service: for longer if it was tried and has failed again.
func (l leftOut) add(name lb.ServiceName, err error) {
	wait := firstRetry
	if out := l[name]; out != nil {
		if wait = out.wait; out.ended {
			wait = min(2*wait, longestRefusal)
		}
	}
	l[name] = &refusal{err: err, until: time.Now().Add(wait), wait: wait}
}

// end ends a refusal before its time, since the Service has changed.
func (l leftOut) end(name lb.ServiceName) {
	if out := l[name]; out != nil {
		out.ended = true
	}
}

// endedAtOnce bounds how many Services are tried again together whose operations may fail one by one.
const endedAtOnce = 8

// endExpired ends some of the refusals whose time has come, and returns of which Services.
func (l leftOut) endExpired(now time.Time) (names []lb.ServiceName) {
	one := 0
	for name, out := range l {
		lacksRoom := errors.As(out.err, new(noRoom)) // one try tells for all of these
		if out.ended || now.Before(out.until) || !lacksRoom && one == endedAtOnce {
			continue
		}
		if !lacksRoom {
			one++
		}
		out.ended = true
		names = append(names, name)
	}
	return names
}

// try notes that a Service is planned again.
func (l leftOut) try(name lb.ServiceName) {
	if out := l[name]; out != nil {
		out.tried = true
	}
}

// succeeded forgets the Services that are in force again.
func (l leftOut) succeeded() {
	maps.DeleteFunc(l, func(_ lb.ServiceName, out *refusal) bool { return out.tried })
}

// next returns when the next refusal ends, false if none is left.
func (l leftOut) next() (at time.Time, ok bool) {
	for _, out := range l {
		if !out.ended && (!ok || out.until.Before(at)) {
			at, ok = out.until, true
		}
	}
	return at, ok
}

// problem says that a Service is left out; some of it may be in force.
func (o *refusal) problem(name lb.ServiceName, inForce bool) lb.Problem {
	p := lb.Problem{Scope: lb.ScopeNode, Object: "Service " + name.String(), Remedy: fmt.Sprintf("see to what the kernel refuses; the agent tries again within %v", longestRefusal)}
	switch {
	case name == ofNode:
		p.Object, p.Reason = "the node", o.err.Error()
	case name == ofPeers:
		p.Object, p.Reason = "the nodes that packets are carried to", fmt.Sprintf("stay as they were: %s", o.err)
	case inForce:
		p.Reason = fmt.Sprintf("stays as it was: %s", o.err)
	default:
		p.Reason, p.Unserved = fmt.Sprintf("is not in force: %s", o.err), true
	}
	return p
}

// isTransient says whether a Service is left out that may come into force within seconds.
func (l leftOut) isTransient() bool {
	for _, out := range l {
		if out.wait < lastRetry {
			return true
		}
	}
	return false
}

// noRoom is an error of Reserve where there is not enough room.
type noRoom struct{ error }

func (n noRoom) Unwrap() error { return n.error }

// resume goes on after an error, without the Services or the operations of the node that it is about. It returns the error
// if that is about none.
func (r *Reconciler) resume(why error) error {
	var failed *plan.OpError
	of := r.pending.first()
	switch {
	case errors.As(why, &failed) && of.isService():
		return r.planAnew(why, func() []lb.ServiceName { return []lb.ServiceName{of.service} })
	case errors.As(why, &failed) && of.sweep:
		r.sweepRefused = min(max(2*r.sweepRefused, sweepAfter), longestRefusal)
		return r.planAnew(why, nobody)
	case errors.As(why, &failed) && standsAlone(failed.Op):
		r.pending.drop(1)
		r.leftOut.add(ofNode, why)
		return nil
	case errors.As(why, &failed) && isOfPeers(failed.Op) && r.isReady(): // the first picture has the ways to backends
		r.leftOut.add(ofPeers, why)
		r.planner.ForgetPeers()
		return r.planAnew(why, nobody)
	case errors.As(why, &failed) && !isOfPeers(failed.Op):
		return r.leaveToNode(failed.Op, why)
	case errors.As(why, new(noRoom)) && r.isReady(): // an agent is not ready before there is room
		return r.planAnew(why, r.withoutRoom())
	}
	return why
}

// standsAlone says whether no other operation depends on one.
func standsAlone(op plan.Op) bool {
	switch op.(type) {
	case plan.PutAddress, plan.DeleteAddress, plan.PutServiceCIDRs, plan.PutPeerAddress:
		return true
	}
	return false
}

// isOfPeers says whether an operation is of nodes that packets are carried to. They change together: a home must name none
// that is not written, and none is cleared that is still named.
func isOfPeers(op plan.Op) bool {
	switch op.(type) {
	case plan.PutPeer, plan.DeletePeerAddress, plan.PutHome:
		return true
	}
	return false
}

// nobody is no Service.
func nobody() []lb.ServiceName { return nil }

// leaveToNode leaves out the Service that was to leave a frontend to the node, which failed.
func (r *Reconciler) leaveToNode(op plan.Op, why error) error {
	content, err := r.dp.Content()
	if err != nil {
		return errors.Join(why, fmt.Errorf("read what is in force: %w", err))
	}
	var id uint32
	switch o := op.(type) {
	case plan.DeleteFrontend:
		id = content.Frontends[o.Key].Service
	case plan.DeleteSourceRange:
		id = o.Range.Service
	}
	name := content.Services[id].ServiceName
	if !isService(name) {
		return why
	}
	r.leftOut.add(name, why) // before it is planned anew: the planner asks
	return r.planAnew(why, nobody)
}

// tryLeftOut plans again what is left out, where it is time.
func (r *Reconciler) tryLeftOut() {
	names := r.leftOut.endExpired(time.Now())
	services := 0
	for _, name := range names {
		if isService(name) {
			r.waiting[name] = true
			services++
		}
	}
	if services == len(names) {
		r.planWaiting()
		return
	}
	if err := r.planAnew(nil, nobody); err != nil {
		r.log.Warn("plan what is left out", zap.Error(err))
		r.leftOut.add(ofNode, err)
		return
	}
	r.leftOut.try(ofNode)
	r.setPeers()
}

// setPeers plans the nodes that packets are carried to, unless they are left out.
func (r *Reconciler) setPeers() {
	if r.peers == nil || r.leftOut.has(ofPeers) {
		return
	}
	r.leftOut.try(ofPeers)
	r.pending.add(owner{}, r.planner.SetPeers(r.peers.here, r.peers.all))
}

// tryLater has what is left out tried when it is time.
func (r *Reconciler) tryLater() {
	if r.plannedAnew > 0 {
		r.restsUntil = time.Now().Add(planShare * r.plannedAnew)
		r.plannedAnew = 0
	}
	if at, ok := r.leftOut.next(); ok {
		r.due.leftOut.Reset(max(time.Until(at), time.Until(r.restsUntil)))
	}
}

// isUnserved says whether a Service is left out, or waits for room, that has nothing in force.
func (r *Reconciler) isUnserved(name lb.ServiceName) bool {
	return (r.leftOut[name] != nil || r.waiting[name]) && !r.planner.Has(name)
}

// withoutRoom returns what says which Services to leave out for want of room: those with pending operations that have nothing in
// force, or else the one with most operations.
func (r *Reconciler) withoutRoom() func() []lb.ServiceName {
	ops := map[lb.ServiceName]int{}
	for _, run := range r.pending.runs {
		if run.of.isService() {
			ops[run.of.service] += run.ops
		}
	}
	changed := slices.SortedFunc(maps.Keys(ops), func(a, b lb.ServiceName) int {
		return cmp.Or(cmp.Compare(ops[b], ops[a]), a.Compare(b))
	})
	return func() []lb.ServiceName {
		if out := slices.DeleteFunc(slices.Clone(changed), r.planner.Has); len(out) > 0 {
			return out
		}
		return changed[:min(1, len(changed))]
	}
}

// planAnew plans from what the maps hold, without the Services that refused names then. Programs may still read what was
// replaced just before, so a grace period passes first.
func (r *Reconciler) planAnew(why error, refused func() []lb.ServiceName) error {
	began := time.Now()
	defer func() { r.plannedAnew += time.Since(began) }()
	if err := r.dp.Grace(); err != nil {
		return errors.Join(why, fmt.Errorf("wait for a grace period: %w", err))
	}
	content, err := r.dp.Content()
	if err != nil {
		return errors.Join(why, fmt.Errorf("read what is in force: %w", err))
	}
	planner, ops, err := r.planner.Resume(content, r.pending.ops, r.leftOut.has)
	if err != nil {
		return errors.Join(why, fmt.Errorf("go on from what is in force: %w", err))
	}
	r.planner, r.pending = planner, pending{}
	r.pending.add(owner{}, ops)
	names := refused()
	for _, name := range names {
		r.leftOut.add(name, why)
	}
	for name, out := range r.leftOut {
		if isService(name) {
			out.tried, r.waiting[name] = false, true
		}
	}
	if len(names) > 0 {
		r.log.Warn("leave out Services, will try again", zap.Int("services", len(names)), zap.Stringer("first", names[0]), zap.Duration("after", r.leftOut[names[0]].wait), zap.Error(why))
	}
	r.toldAll = false // what was lost and is applied is not known any more
	r.wait(r.state.Services())
	r.wait(planner.Services())
	r.planWaiting()
	if errors.As(why, new(noRoom)) && len(names) == 0 {
		return why // it is for the node
	}
	return nil
}
