package plan

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// change is one Service on its way from what it has to what it should have.
// What it takes from the pool is taken at once and given back by undo; the
// frontends change only in finish.
type change struct {
	p       *Planner
	name    lb.ServiceName
	had     map[lb.AddrPort]bool // in force before and not wanted again
	take    []taken
	refused map[lb.AddrPort]lb.Frontend // nil for none, as are the next maps
	puts    []Op                        // of backends, tables, names: bottom-up
	ops     []Op
	before  uses
	ended   []DeleteSourceRange // what goes when no frontend uses it any more
	added   int                 // places of frontends that it takes besides those in force
	lingers bool                // Service ports that go keep their backends for a while

	rewrites map[*tableRef]*rewrite
	drains   map[lb.AddrPort]*drain
	beside   []lb.AddrPort // addresses of the node where a NodePort has come, gone or changed hands
}

// taken is a frontend with what it uses.
type taken struct {
	key   lb.AddrPort
	entry *entry
	anew  bool // changes over in one step
}

func (p *Planner) begin(name lb.ServiceName) *change {
	c := &change{p: p, name: name, before: p.taken()}
	if owned := p.owned[name]; len(owned) > 0 {
		c.had = make(map[lb.AddrPort]bool, len(owned))
		for _, key := range owned {
			c.had[key] = true
		}
	}
	return c
}

// want takes what a frontend needs from the pool, unless another Service has the
// better claim to it.
func (c *change) want(f lb.Frontend) {
	if c.p.loses(claimOf(c.name, f), f.AddrPort) {
		if c.refused == nil {
			c.refused = map[lb.AddrPort]lb.Frontend{}
		}
		c.refused[f.AddrPort] = f
		return
	}
	e, anew := c.p.frontends[f.AddrPort], false
	switch was := c.p.formers[f.AddrPort]; {
	case was != nil:
		if was.owner == c.name {
			c.drain(&f, was.members)
		}
		if anew = len(f.SourceRanges) > 0; anew {
			c.added++
		}
	case e == nil:
		c.added++
	case e.claim.Service == c.name:
		c.drain(&f, e.members())
	default:
		if anew = e.isAnew(f); anew {
			c.added++
		}
		e = nil
	}
	delete(c.had, f.AddrPort)
	c.take = append(c.take, taken{f.AddrPort, c.newEntry(c.name, f, e, &c.puts), anew})
}

// newEntry takes from the pool what a frontend uses, and returns it. Old is what
// the frontend was before, nil for nothing.
func (c *change) newEntry(owner lb.ServiceName, f lb.Frontend, old *entry, puts *[]Op) *entry {
	p := c.p
	if old == nil {
		old = &entry{}
	}
	e := &entry{claim: claimOf(owner, f), ranges: f.SourceRanges}
	p.pool.useHomes(f, p.peers, puts)
	specs := p.specsOf(owner, f)
	for i, spec := range specs {
		if i > 0 && spec.equal(specs[lb.Internal]) { // mostly: no need to look again
			e.tables[i] = p.pool.shareTable(e.tables[lb.Internal])
			continue
		}
		e.tables[i] = c.useTable(spec, old.tables[i], puts)
	}
	e.value = Frontend{
		Service: p.pool.useService(Service{owner, f.Port, f.Protocol}, puts),
		Kind:    f.Kind,
		Members: e.members().view(lb.Random).Table,

		Filtered: len(f.SourceRanges) > 0,
		Carried:  f.Carried,
		Steering: f.Or(p.defaults).Steering,
	}
	for i := range f.Views {
		e.value.Views[i] = e.tables[i].view(specs[i].algorithm)
	}
	for i, v := range f.Views[:lb.FallbackZone] {
		at := &e.value.Views[i]
		at.Why, at.NoLocal, at.FallsBack = v.Why, at.Table.Size == 0 && v.NoLocal, at.Table.Size > 0 && v.FallsBack
	}
	return e
}

// useTable returns the table that a spec asks for: the one before it, changed in
// place, if it can be.
func (c *change) useTable(spec tableSpec, base *tableRef, puts *[]Op) *tableRef {
	if c.p.pool.holds(base, spec) { // mostly, after a restart: no need to look for its backends
		return c.p.pool.shareTable(base)
	}
	if t := c.useInPlace(base, spec); t != nil {
		return t
	}
	return c.p.pool.useTable(spec, base, puts)
}

// dropEntry gives back what a frontend uses.
func (p *Planner) dropEntry(e *entry) {
	for _, t := range e.tables {
		p.pool.dropTable(t)
	}
	p.pool.dropService(e.value.Service)
}

// view returns the way to a table, which is nil for none.
func (t *tableRef) view(a lb.Algorithm) View {
	if t == nil {
		return View{}
	}
	if a == lb.Random {
		a = lb.AlgorithmDefault
	}
	return View{Table: t.table(), Algorithm: a, Weighted: t.weighted}
}

// undo gives back what was taken. It was never written, so that it need not
// wait for a grace period; what was retired meanwhile stays so.
func (c *change) undo() {
	for _, t := range c.take {
		c.p.dropEntry(t.entry)
	}
	c.p.pool.commit()
	c.undoRewrites()
	c.p.pool.forget(c.puts)
}

// forget removes what the given operations were to write.
func (p *pool) forget(puts []Op) {
	var backends, services []uint32
	for _, op := range puts {
		switch o := op.(type) {
		case PutBackend:
			backends = append(backends, o.ID)
			p.backends.removeAt(o.ID)
			delete(p.homes, o.ID)
			delete(p.retiredBackends, o.ID)
		case PutTable:
			p.freeRun(p.tables[o.key])
			delete(p.tables, o.key)
			p.recallTable(o.key)
		case PutHome:
			if h, there := p.homes[o.ID]; there {
				h.peer = homeUnwritten
				p.homes[o.ID] = h
			}
		case PutService:
			services = append(services, o.ID)
			p.services.removeAt(o.ID)
			delete(p.retiredServices, o.ID)
		}
	}
	p.backendIDs.free(backends...)
	p.serviceIDs.free(services...)
}

// finish makes the change: what is new bottom-up, what ends top-down.
func (c *change) finish() {
	p := c.p
	c.ops = append(c.ops, c.puts...)
	c.useRanges()
	for _, t := range c.take {
		c.place(t)
		p.setDrain(t.key, c.drains[t.key])
	}
	p.pool.commit()
	p.waitFor(c.name, c.refused)
	for _, key := range slices.SortedFunc(maps.Keys(c.had), lb.AddrPort.Compare) {
		if !c.passOn(key) {
			c.giveUp(key)
		}
	}
	c.follow()
	owned := make([]lb.AddrPort, 0, len(c.take))
	for _, t := range c.take {
		owned = append(owned, t.key)
	}
	p.own(c.name, owned)
	c.endRanges()
	c.ops = append(c.ops, p.decide(c.beside)...)
}

// place puts a frontend in force, in place of what stood there.
func (c *change) place(t taken) {
	p := c.p
	old := p.frontends[t.key]
	if old == nil || old.value != t.entry.value {
		c.ops = append(c.ops, PutFrontend{Key: t.key, Value: t.entry.value, Anew: t.anew})
	}
	c.replaceFormers(t)
	p.frontends[t.key] = t.entry
	if old == nil || old.adopted || old.claim != t.entry.claim {
		c.beside = append(c.beside, p.beside(t.key)...)
	}
	if old != nil && old.members() != t.entry.members() {
		p.lose(t.key, old.members(), t.entry.members())
	}
	p.open(t.key, old, t.entry)
	p.countFrontend(t.key.Addr, t.entry.value.Kind, 1)
	if old != nil {
		c.release(t.key, old)
		if t.anew {
			p.retireFrontend(t.key)
		}
		if name := old.claim.Service; name != c.name && name != t.entry.claim.Service {
			p.displace(t.key, old)
		}
	}
	p.writeAddress(t.key.Addr, &c.ops)
}

// release gives back what a frontend had that is no longer in force.
func (c *change) release(key lb.AddrPort, e *entry) {
	c.p.ranges.drop(e.value.Service, e.ranges, &c.ended)
	c.p.countFrontend(key.Addr, e.value.Kind, -1)
	c.p.dropEntry(e)
}

// lose notes the backends that a frontend had and has no more.
func (p *Planner) lose(key lb.AddrPort, had, has *tableRef) {
	for _, id := range had.beyond(has) {
		p.losses = append(p.losses, Loss{Frontend: key, Backend: p.pool.backend(id)})
	}
}

// open notes a UDP frontend that begins to have backends for clients of the node.
func (p *Planner) open(key lb.AddrPort, old, now *entry) {
	if key.Protocol == lb.UDP && !old.opens() && now.opens() {
		p.losses = append(p.losses, Loss{Frontend: key, Backend: key})
	}
}

// opens says whether new clients of the node get backends.
func (e *entry) opens() bool { return e != nil && e.value.Views[lb.Internal].Table.Size > 0 }

// beyond returns the IDs of the backends of a table that another one has not; either may be nil. Of a
// table that is derived from it that is known.
func (t *tableRef) beyond(o *tableRef) (ids []uint32) {
	switch {
	case t == nil:
		return nil
	case o == nil:
		return t.ids
	case o.large != nil && o.large.delta != nil && o.large.delta.base == t:
		return o.large.delta.removed
	}
	has := make(map[uint32]bool, len(o.ids))
	for _, id := range o.ids {
		has[id] = true
	}
	for _, id := range t.ids {
		if !has[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// remove ends a frontend.
func (c *change) remove(key lb.AddrPort) {
	p := c.p
	e := p.frontends[key]
	delete(p.frontends, key)
	delete(p.draining, key)
	c.beside = append(c.beside, p.beside(key)...)
	p.lose(key, e.members(), nil)
	c.release(key, e)
	p.writeAddress(key.Addr, &c.ops)
	c.ops = append(c.ops, DeleteFrontend{Key: key})
	p.retireFrontend(key)
}

// retireFrontend ends the use of the place of a frontend, which is gone or has another.
func (p *Planner) retireFrontend(key lb.AddrPort) { p.pool.retiredFrontends[key] = p.pool.time }

// waitFor notes what a Service wants and others have, in place of what it waited for
// before.
func (p *Planner) waitFor(name lb.ServiceName, refused map[lb.AddrPort]lb.Frontend) {
	for key, waiting := range p.wanting {
		if _, still := refused[key]; !still {
			delete(waiting, name)
		}
		if len(waiting) == 0 {
			delete(p.wanting, key)
		}
	}
	for key, f := range refused {
		if p.wanting[key] == nil {
			p.wanting[key] = map[lb.ServiceName]lb.Frontend{}
		}
		p.wanting[key][name] = f
	}
}

// own says which frontends a Service has.
func (p *Planner) own(name lb.ServiceName, keys []lb.AddrPort) {
	if len(keys) == 0 {
		delete(p.owned, name)
		return
	}
	p.owned[name] = keys
}
