package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// roomForLimit is by how much a map may be larger than what Services may use of it:
// what is gone takes room until it is cleared, and what drains until it is drained.
const roomForLimit = 2

// ErrLater says that there is room for a Service as soon as what is gone has been
// cleared by a sweep, or lingers no more.
var ErrLater = errors.New("there is no room until what is gone has been cleared")

// shared is how Services share the limited maps.
type shared struct {
	demands *keyed[lb.ServiceName, demand]
	total   uses                      // of all demands
	changed bool                      // since the rations were decided
	rations map[lb.ServiceName]ration // of those that do not get all
	cramped map[lb.ServiceName]lb.Problem
}

// Ask says what a Service will be Set to, so that it is counted when another one is
// Set before it. Set does so itself, and SetAsked does not.
func (p *Planner) Ask(name lb.ServiceName, frontends []lb.Frontend) {
	p.demand(name, p.demandOf(name, frontends))
}

func (p *Planner) demand(name lb.ServiceName, d demand) {
	s := &p.shared
	old := s.demands.get(name)
	if old != nil && *old == d {
		return
	}
	s.changed = true
	s.total = s.total.plus(d.full)
	if old != nil {
		s.total = s.total.minus(old.full)
	}
	switch {
	case d.full == (uses{}):
		s.demands.remove(name)
	case old != nil:
		*old = d
	default:
		s.demands.add(d)
	}
}

// of returns what a Service asks for.
func (s *shared) of(name lb.ServiceName) uses {
	if d := s.demands.get(name); d != nil {
		return d.full
	}
	return uses{}
}

// newDemands returns demands of nobody: of a Service they take 120 bytes, in a map 190.
func newDemands() *keyed[lb.ServiceName, demand] {
	return newKeyed(func(d *demand) lb.ServiceName { return d.claim.Service })
}

// adoptDemands has Services ask for what they have, until they are Set.
func (p *Planner) adoptDemands() {
	for name := range p.owned {
		p.demand(name, demand{claim: lb.Claim{Service: name}, full: p.inForce(name)})
	}
}

// refused says whether a Service gets nothing new.
func (p *Planner) refused(name lb.ServiceName) bool { return p.shared.rations[name].refused }

// share decides anew who gets what, if anything has been asked for since, and returns
// the operations by which those that are refused give up what they have. All for whom
// something changes are to be Set again.
func (p *Planner) share() (ops []Op) {
	s := &p.shared
	if !s.changed {
		return nil
	}
	s.changed = false
	if len(s.rations) == 0 && s.total.fit(p.limits) {
		return nil
	}
	before, r := s.rations, divide(s.demands, p.limits)
	s.rations = r.rations
	p.keepWhatFits(r)
	var beside []lb.AddrPort
	for _, names := range []map[lb.ServiceName]ration{before, s.rations} {
		for name := range names {
			if was, is := before[name], s.rations[name]; was.refused != is.refused || was.reduced != is.reduced {
				p.displaced[name] = true
				for _, key := range p.owned[name] {
					beside = append(beside, p.beside(key)...)
				}
			}
		}
	}
	refused := slices.SortedFunc(maps.Keys(s.rations), lb.ServiceName.Compare)
	refused = slices.DeleteFunc(refused, func(name lb.ServiceName) bool { return !p.refused(name) })
	for _, name := range refused { // before anybody gives something up
		p.waitFor(name, nil)
	}
	for _, name := range refused {
		ops = append(ops, p.refuse(name, s.rations[name].keeps)...)
	}
	return append(ops, p.decide(beside)...)
}

// keepWhatFits leaves Services that are refused what they have in force, as far as
// nobody else needs the room, the smallest first.
func (p *Planner) keepWhatFits(r *rationing) {
	for _, c := range slices.Backward(r.made) {
		name := c.claim.Service
		has := r.rations[name]
		if !has.refused || !c.refuse || !p.Has(name) {
			continue
		}
		if with := r.total.plus(p.inForce(name)); with.fit(p.limits) {
			r.total, has.keeps = with, true
			r.rations[name] = has
		}
	}
}

// refuse takes from a Service all that it has, or what others wait for.
func (p *Planner) refuse(name lb.ServiceName, keeps bool) []Op {
	c := p.begin(name)
	var kept []lb.AddrPort
	for _, key := range p.owned[name] {
		if _, ok := p.bestWaiting(key, name); keeps && !ok {
			delete(c.had, key)
			kept = append(kept, key)
		}
	}
	c.finish()
	p.own(name, slices.DeleteFunc(kept, func(k lb.AddrPort) bool { return p.frontends[k] == nil || p.frontends[k].claim.Service != name }))
	return c.ops
}

// withUsualTables returns frontends whose tables for hashes go by the backends.
func withUsualTables(frontends []lb.Frontend) []lb.Frontend {
	frontends = slices.Clone(frontends)
	for i := range frontends {
		frontends[i].TableSize = 0
	}
	return frontends
}

// Shortages returns the problems of all Services that do not get what they ask for,
// since a limit leaves no room for all.
func (p *Planner) Shortages() []Conflict {
	var all []Conflict
	for _, name := range slices.SortedFunc(maps.Keys(p.shared.rations), lb.ServiceName.Compare) {
		all = append(all, Conflict{name, p.shortage(name, p.shared.rations[name])})
	}
	for _, name := range slices.SortedFunc(maps.Keys(p.shared.cramped), lb.ServiceName.Compare) {
		all = append(all, Conflict{name, p.shared.cramped[name]})
	}
	return all
}

// shortage returns the problem of a Service that does not get all.
func (p *Planner) shortage(name lb.ServiceName, r ration) lb.Problem {
	problem, m := lb.Problem{Object: "Service " + name.String()}, r.lacks
	problem.Unserved = r.refused && !r.keeps
	if r.refused && p.shared.of(name)[m] <= p.limits[m] { // else it asks for more than there is for all
		problem.Scope = lb.ScopeNode
	}
	what, remedy := "gets no address", "or have this Service use less"
	switch {
	case r.keeps:
		what = "keeps the addresses and backends that it had"
	case !r.refused:
		problem.Field, what = "metadata.annotations[headgate.dev/table-size]", "is not used"
		remedy = "or ask for a smaller table"
	}
	problem.Reason = fmt.Sprintf("%s: all Services together ask for %d entries of the %s map, this one for %d, and there is room for %d",
		what, p.shared.total[m], m, p.shared.of(name)[m], p.limits[m])
	problem.Remedy = m.remedy() + ", " + remedy
	if m == limitedRanges {
		problem.Field, problem.Remedy = "spec.loadBalancerSourceRanges", m.remedy()
	}
	return problem
}

// lacksRoom returns an error where a change fits the limits, but not the maps: ErrLater,
// or a problem where nothing lingers or waits to be cleared. What needs no more than before fits.
func (c *change) lacksRoom() error {
	p := c.p
	needs, before := p.taken(), c.before
	needs[limitedFrontends] += uint64(c.added)
	needs[limitedRanges] = uint64(c.rangesOver())
	for m, limit := range p.limits {
		room := roomForLimit * limit
		if limit == 0 || needs[m] <= room || needs[m] <= before[m] {
			continue
		}
		if p.Retired() > 0 || len(p.lingering) > 0 {
			return ErrLater
		}
		problem := lb.Problem{
			Scope: lb.ScopeNode, Object: "Service " + c.name.String(),
			Reason: fmt.Sprintf("is not changed yet: it takes %d entries of the %s map, with those that drain, and there is room for %d", needs[m], limited(m), room),
			Remedy: limited(m).remedy(), Unserved: !p.Has(c.name),
		}
		p.shared.cramped[c.name] = problem
		return problem
	}
	return nil
}

// taken counts what is in use or waits to be cleared; gaps between tables are neither.
func (p *Planner) taken() uses {
	frontends := len(p.frontends) + len(p.formers) + len(p.pool.retiredFrontends)
	return uses{uint64(frontends), uint64(p.pool.regions.used), p.pool.backendIDs.taken(), p.pool.serviceIDs.taken()}
}
