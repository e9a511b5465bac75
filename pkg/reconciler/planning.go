package reconciler

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// local returns the addresses of the node that others can reach.
func local(addresses map[netip.Addr]plan.AddressKind) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a, kind := range addresses {
		if kind&plan.LoopbackAddress == 0 {
			out[a] = true
		}
	}
	return out
}

// setServiceCIDRs plans the prefixes that belong to Services, if the update
// says which.
func (r *Reconciler) setServiceCIDRs(u lb.Update) {
	if u.ServiceCIDRs == nil {
		return
	}
	ops, err := r.planner.SetServiceCIDRs(u.ServiceCIDRs)
	r.cidrProblem = err
	r.pending.add(owner{}, ops)
}

// planWaiting plans every Service that changed, of which a backend is drained, or
// that lost a frontend to one of these, and is not frozen. It waits for a whole
// picture: what an address is decides who gets it.
func (r *Reconciler) planWaiting() {
	if !r.complete() {
		return
	}
	r.wait(r.planner.Tick(time.Now())) // even before a sweep, or its time would be due again and again
	r.wait(r.planner.TakeDisplaced())  // by addresses of the node that came or went
	if r.waitsForSweep() {
		return
	}
	r.recall()
	todo := slices.SortedFunc(maps.Keys(r.waiting), lb.ServiceName.Compare)
	wanted := r.ask(todo)
	todo = r.withRoom(todo, wanted)
	r.beginFirst(todo)
	for ; len(todo) > 0; todo = r.planner.TakeDisplaced() {
		for _, name := range todo {
			r.plan(name, wanted)
			r.writePiece()
		}
	}
	r.endLingering()
	r.endPiece()
	r.waiting, r.adopted = renewed(r.waiting), renewed(r.adopted)
}

// renewed returns a new map in place of an empty one, which takes as long to go through as it
// did when it held most.
func renewed(names map[lb.ServiceName]bool) map[lb.ServiceName]bool {
	if len(names) > 0 {
		return names
	}
	return map[lb.ServiceName]bool{}
}

// ask returns what Services want, and has the planner know of all before the first is
// planned: so that none gets what it would have to give up for the next.
func (r *Reconciler) ask(names []lb.ServiceName) map[lb.ServiceName][]lb.Frontend {
	wanted := map[lb.ServiceName][]lb.Frontend{}
	if len(names) == 1 && r.planner.Has(names[0]) {
		return wanted
	}
	names = slices.DeleteFunc(slices.Clone(names), r.frozen)
	for i, frontends := range r.state.FrontendsOfEach(names) {
		wanted[names[i]] = frontends
		r.planner.Ask(names[i], frontends)
	}
	return wanted
}

// plan plans one Service, which otherwise goes on waiting.
func (r *Reconciler) plan(name lb.ServiceName, wanted map[lb.ServiceName][]lb.Frontend) {
	r.waiting[name] = true
	if r.frozen(name) {
		return
	}
	r.leftOut.try(name)
	frontends, asked := wanted[name]
	set := r.planner.SetAsked
	if !asked {
		frontends, set = r.state.Frontends(name), r.planner.Set
	}
	ops, err := set(name, frontends)
	r.pending.add(owner{service: name}, ops)
	delete(wanted, name) // of a first picture it is much
	if err != nil && r.planner.Has(name) {
		return
	}
	if err != nil {
		frontends = nil // none is in force
	} else {
		delete(r.waiting, name)
		delete(r.adopted, name)
	}
	r.countNoLocal(name, frontends)
	for _, p := range r.probers {
		p.SetFrontends(name, frontends)
	}
}

// frozen says whether what is in force of a Service stays as it is: the kernel refuses the next operation, or
// nothing good is known of the Service itself.
func (r *Reconciler) frozen(name lb.ServiceName) bool {
	if r.leftOut.has(name) {
		return true
	}
	if stays := r.input.Frozen[name] || r.input.Partial && r.adopted[name]; !stays {
		return false // the usual case
	}
	service, _ := r.state.Seen(name)
	return !service
}

// recall has Services keep what they had where that may be of a slice which cannot be
// read, and forget it when everything can.
func (r *Reconciler) recall() {
	for name := range r.state.Recalled() {
		if service, _ := r.state.Seen(name); !service || !r.lacks(name) {
			r.wait(r.state.Forget(name))
			r.waiting[name] = true
		}
	}
	if len(r.input.FrozenEndpoints) == 0 && !r.input.Partial {
		return // the usual case: nobody lacks any
	}
	for name := range r.waiting {
		service, slices := r.state.Seen(name)
		if service && !r.state.Recalls(name) && r.lacks(name) && r.planner.Has(name) && (r.adopted[name] || !slices) {
			r.wait(r.state.Recall(name, r.planner.Frontends(name)))
		}
	}
}

// lacks says whether a Service may have endpoints that nobody has told of: a slice of it is
// bad, or since before this process something is unread that may hold one.
func (r *Reconciler) lacks(name lb.ServiceName) bool {
	return r.input.FrozenEndpoints[name] || r.input.Partial && (r.adopted[name] || r.state.Recalls(name))
}

// wait has Services planned next.
func (r *Reconciler) wait(names []lb.ServiceName) {
	for _, name := range names {
		r.waiting[name] = true
	}
}
