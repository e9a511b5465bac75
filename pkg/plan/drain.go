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
// drained since: to be Set again. Each is named once.
func (p *Planner) Tick(now time.Time) []lb.ServiceName {
	p.now = now
	due := map[lb.ServiceName]bool{}
	for _, d := range p.draining {
		if !d.due && !now.Before(d.until) {
			d.due = true
			due[d.owner] = true
		}
	}
	return slices.SortedFunc(maps.Keys(due), lb.ServiceName.Compare)
}

// NextDrained returns when Tick has Services to name; ok is false where no
// backend drains.
func (p *Planner) NextDrained() (at time.Time, ok bool) {
	for _, d := range p.draining {
		if !d.due && (!ok || d.until.Before(at)) {
			at, ok = d.until, true
		}
	}
	return at, ok
}

// drain keeps those backends among the members of a frontend that left it less than its
// drain time ago. One that was in force before this process is taken to leave now: the
// maps do not say since when it drains.
func (c *change) drain(f *lb.Frontend, e *entry) {
	if f.DrainTime <= 0 || e.members() == nil {
		return
	}
	if c.p.pool.names(e.members(), f.Members) {
		return // the usual case
	}
	d := &drain{owner: c.name, left: map[lb.AddrPort]time.Time{}}
	stays := map[lb.AddrPort]bool{}
	for _, b := range f.Members {
		stays[b] = true
	}
	for _, b := range c.p.pool.backendsOf(e.members()) {
		if stays[b] {
			continue
		}
		left := c.p.leftAt(f.AddrPort, b)
		until := left.Add(f.DrainTime)
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
// drain before.
func (p *Planner) leftAt(frontend, backend lb.AddrPort) time.Time {
	if d := p.draining[frontend]; d != nil {
		if at, ok := d.left[backend]; ok {
			return at
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
