package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// drain is the backends that a frontend knows though its Service has them no
// more.
type drain struct {
	owner lb.ServiceName
	left  map[lb.AddrPort]time.Time // when each of them left; never empty
	until time.Time                 // when the first of them is drained
	due   bool                      // Tick has said so
}

// Tick says what time it is, and returns the Services of which a backend is
// drained since, or a former frontend is due: to be Set again. Each is named once.
func (p *Planner) Tick(now time.Time) []lb.ServiceName {
	p.now = now
	due := map[lb.ServiceName]bool{}
	for _, d := range p.draining {
		if !d.due && !now.Before(d.until) {
			d.due = true
			due[d.owner] = true
		}
	}
	for name, until := range p.held {
		if _, lingers := p.lingering[name]; !lingers && !now.Before(until) {
			delete(p.held, name)
		}
	}
	for name, at := range p.lingering {
		if !at.IsZero() && !now.Before(at) {
			p.lingering[name] = time.Time{}
			due[name] = true
		}
	}
	return slices.SortedFunc(maps.Keys(due), lb.ServiceName.Compare)
}

// NextDrained returns when Tick has Services to name; ok is false if no
// backend drains and no former frontend is due.
func (p *Planner) NextDrained() (at time.Time, ok bool) {
	for _, d := range p.draining {
		if !d.due && (!ok || d.until.Before(at)) {
			at, ok = d.until, true
		}
	}
	for _, due := range p.lingering {
		if !due.IsZero() && (!ok || due.Before(at)) {
			at, ok = due, true
		}
	}
	return at, ok
}

// drain keeps backends among the members of a frontend for the drain time after they left.
// If the Service has just been made again, it keeps all. A backend that was in force before this
// process is taken to leave now: the maps do not say since when it drains.
func (c *change) drain(f *lb.Frontend, had *tableRef) {
	held := c.p.held[c.name]
	if had == nil || f.DrainTime <= 0 && !c.p.now.Before(held) {
		return
	}
	if c.p.pool.names(had, f.Members) {
		return // the usual case
	}
	d := &drain{owner: c.name, left: map[lb.AddrPort]time.Time{}}
	stays := map[lb.AddrPort]bool{}
	for _, b := range f.Members {
		stays[b] = true
	}
	for _, b := range c.p.pool.backendsOf(had) {
		if stays[b] {
			continue
		}
		left := c.p.leftAt(c.name, f.AddrPort, b)
		until := left.Add(f.DrainTime)
		if until.Before(held) {
			until = held
		}
		if !c.p.now.Before(until) {
			continue
		}
		if len(d.left) == 0 || until.Before(d.until) {
			d.until = until
		}
		d.left[b] = left
	}
	if len(d.left) == 0 {
		return
	}
	if c.drains == nil {
		c.drains = map[lb.AddrPort]*drain{}
	}
	c.drains[f.AddrPort] = d
	f.Members = slices.AppendSeq(slices.Clone(f.Members), maps.Keys(d.left)) // the caller's stays as it is
	slices.SortFunc(f.Members, lb.AddrPort.Compare)
}

// leftAt returns when a backend left a frontend: now, unless it was known to
// drain before, there or at another frontend of the Service.
func (p *Planner) leftAt(name lb.ServiceName, frontend, backend lb.AddrPort) time.Time {
	if f := p.formers[frontend]; f != nil {
		if at, ok := f.left[backend]; ok {
			return at
		}
	}
	for _, key := range append([]lb.AddrPort{frontend}, p.owned[name]...) {
		if d := p.draining[key]; d != nil {
			if at, ok := d.left[backend]; ok {
				return at
			}
		}
	}
	return p.now
}

// setDrain notes what drains behind a frontend, nil for nothing.
func (p *Planner) setDrain(frontend lb.AddrPort, d *drain) {
	if d == nil {
		delete(p.draining, frontend)
		return
	}
	p.draining[frontend] = d
}
