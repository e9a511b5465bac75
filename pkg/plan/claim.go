package plan

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Conflict is a frontend that a Service wants and another has.
type Conflict struct {
	Service lb.ServiceName // that does not have it
	lb.Problem
}

// Conflicts returns every frontend that a Service wants and another has.
func (p *Planner) Conflicts() []Conflict {
	var conflicts []Conflict
	for _, key := range slices.SortedFunc(maps.Keys(p.wanting), lb.AddrPort.Compare) {
		for _, name := range slices.SortedFunc(maps.Keys(p.wanting[key]), lb.ServiceName.Compare) {
			claim := claimOf(name, p.wanting[key][name])
			if has, ok := p.claimAt(key, name); ok {
				conflicts = append(conflicts, conflict(key, has, claim))
			}
		}
	}
	return append(conflicts, p.lostNodePorts()...)
}

// claimAt returns the best claim in force to a frontend, that of a NodePort which
// answers there included, one Service aside; false where there is none.
func (p *Planner) claimAt(key lb.AddrPort, aside lb.ServiceName) (best lb.Claim, ok bool) {
	for _, e := range []*entry{p.frontends[key], p.nodePortAt(key)} {
		if e != nil && e.claim.Service != aside && (!ok || e.claim.Compare(best) < 0) {
			best, ok = e.claim, true
		}
	}
	return best, ok
}

// conflict is a frontend that one claim has over another.
func conflict(key lb.AddrPort, has, wants lb.Claim) Conflict {
	return Conflict{wants.Service, lb.Problem{
		Object: "Service " + wants.Service.String(),
		Field:  wants.Kind.String(),
		Value:  key.String(),
		Reason: "Service " + has.Service.String() + " has this frontend " + has.Over(wants),
		Remedy: "give one of the two another address or port",
	}}
}

// TakeDisplaced returns, once each, the Services that lost a frontend to a better
// claim, or can have one that was a NodePort's. They are to be Set again, so that
// they wait for it, or have it.
func (p *Planner) TakeDisplaced() []lb.ServiceName {
	names := slices.SortedFunc(maps.Keys(p.displaced), lb.ServiceName.Compare)
	clear(p.displaced)
	return names
}

func claimOf(name lb.ServiceName, f lb.Frontend) lb.Claim {
	return lb.Claim{Service: name, Kind: f.Kind, Age: f.Age}
}

// keeps says whether a frontend stays with its owner though another claims it. An
// adopted one does until its owner is Set, unless its kind alone decides.
func (e *entry) keeps(o lb.Claim) bool {
	if e.adopted {
		return e.claim.Kind <= o.Kind
	}
	return e.claim.Compare(o) < 0
}

// loses says whether another Service has a better claim to a frontend than this one.
// One that is refused has none, though it may have the frontend.
func (p *Planner) loses(claim lb.Claim, key lb.AddrPort) bool {
	e := p.frontends[key]
	switch {
	case p.yields(claim, key):
		return true
	case e == nil:
		return false
	case e.claim.Service != claim.Service:
		return !p.refused(e.claim.Service) && e.keeps(claim)
	default:
		best, ok := p.bestWaiting(key, claim.Service)
		return ok && best.Compare(claim) < 0
	}
}

// bestWaiting returns the best claim of those that wait for a frontend, one Service
// aside, and those that have to leave it to a NodePort.
func (p *Planner) bestWaiting(key lb.AddrPort, aside lb.ServiceName) (best lb.Claim, ok bool) {
	for name, f := range p.wanting[key] {
		if claim := claimOf(name, f); name != aside && !p.yields(claim, key) && (!ok || claim.Compare(best) < 0) {
			best, ok = claim, true
		}
	}
	return best, ok
}

// isAnew says whether a frontend changes over to another owner in one step. Mostly its
// views change in one store each; but where somebody's source ranges are to hold, who reads
// half of the old and half of the new could get past them.
func (e *entry) isAnew(f lb.Frontend) bool { return e.value.Filtered || len(f.SourceRanges) > 0 }

// displace notes what the owner of a frontend loses to another Service.
func (p *Planner) displace(key lb.AddrPort, old *entry) {
	name := old.claim.Service
	p.displaced[name] = true
	p.own(name, slices.DeleteFunc(p.owned[name], func(k lb.AddrPort) bool { return k == key }))
}

// passOn gives a frontend that the Service no longer has to the best claim that
// waits for it; false if none does.
func (c *change) passOn(key lb.AddrPort) bool {
	p := c.p
	next, ok := p.bestWaiting(key, c.name)
	if !ok {
		return false
	}
	f := p.wanting[key][next.Service]
	delete(p.wanting[key], next.Service)
	if len(p.wanting[key]) == 0 {
		delete(p.wanting, key)
	}
	e := c.newEntry(next.Service, f, nil, &c.ops)
	p.ranges.use(e.value.Service, e.ranges, &c.ops)
	delete(p.draining, key)
	c.place(taken{key, e, p.frontends[key].isAnew(f)})
	p.own(next.Service, append(p.owned[next.Service], key))
	if len(p.formerOf[next.Service]) > 0 { // they follow
		p.displaced[next.Service] = true
	}
	return true
}
