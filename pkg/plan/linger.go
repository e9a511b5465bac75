package plan

import (
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// SetLinger says for how long clients keep their backends when a Service port goes: a Service that is made
// again with the same endpoints by then ends no connection. Without it, they lose them at once.
func (p *Planner) SetLinger(d time.Duration) { p.linger = d }

// linger says whether a former frontend keeps its members though the Service port is gone, or has not got
// all of them again.
func (c *change) linger(f *former, has *tableRef) bool {
	p := c.p
	held := p.held[c.name]
	switch {
	case has != nil && (!p.now.Before(held) || len(f.members.beyond(has)) == 0):
		return false
	case has == nil && f.until.IsZero():
		f.until = p.now.Add(p.linger)
	}
	if has != nil || f.until.Before(held) {
		f.until = held
	}
	if !c.lingers || !p.now.Before(f.until) {
		return false
	}
	if due, known := p.lingering[c.name]; !known || f.until.Before(due) {
		p.lingering[c.name] = f.until
	}
	return true
}

// hold has a Service keep its former backends for a while longer if it is made again or a port gets another
// name. In a cluster, the EndpointSlices change after the Service.
func (p *Planner) hold(name lb.ServiceName, frontends []lb.Frontend) {
	if len(frontends) == 0 {
		delete(p.held, name)
		return
	}
	_, again := p.lingering[name]
	_, held := p.held[name]
	if again = again && !held && !p.Has(name); !again {
		again = slices.ContainsFunc(frontends, func(f lb.Frontend) bool { return p.isOfAnother(name, f) })
	}
	if again && p.linger > 0 {
		p.held[name] = p.now.Add(p.linger)
	}
}

// isOfAnother says whether a frontend is that of another object with the name of the Service, or of another port.
func (p *Planner) isOfAnother(name lb.ServiceName, f lb.Frontend) bool {
	e := p.frontends[f.AddrPort]
	if e == nil || e.claim.Service != name {
		return false
	}
	return e.claim.Age != f.Age && e.claim.Age != (lb.Age{}) || p.pool.services.at(e.value.Service).service.Port != f.Port
}

// Lingers says whether a former frontend stays though its Service port is gone.
func (p *Planner) Lingers() bool { return len(p.lingering) > 0 }

// MuchLingers says whether more Services linger than an eighth of the Service ports for which there is room.
func (p *Planner) MuchLingers(room Sizes) bool { return 8*uint32(len(p.lingering)) > room.Services }

// EndLingering ends those that are due and whose Service could not be Set, or all if others need the room.
func (p *Planner) EndLingering(all bool) []Op {
	var names []lb.ServiceName
	for name, at := range p.lingering {
		if all || at.IsZero() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, lb.ServiceName.Compare)
	c := p.begin(lb.ServiceName{})
	for _, name := range names {
		for _, key := range slices.Clone(p.formerOf[name]) {
			if !p.formers[key].until.IsZero() {
				c.removeFormer(key, nil)
			}
		}
		delete(p.lingering, name)
	}
	return c.ops
}
