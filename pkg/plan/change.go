package plan

import (
	"fmt"
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
	refused map[lb.AddrPort]lb.Frontend
	puts    []Op // of backends, tables, names: bottom-up
	ops     []Op
	before  Sizes
	ended   []Op     // what goes when no frontend uses it any more
	newIDs  []uint32 // of frontends that were not there

	rewrites map[*tableRef]*rewrite
	drains   map[lb.AddrPort]*drain
}

// taken is a frontend with what it uses.
type taken struct {
	key   lb.AddrPort
	entry *entry
}

func (p *Planner) begin(name lb.ServiceName) *change {
	c := &change{p: p, name: name, had: map[lb.AddrPort]bool{}, refused: map[lb.AddrPort]lb.Frontend{}, before: p.Needs(), drains: map[lb.AddrPort]*drain{}}
	for _, key := range p.owned[name] {
		c.had[key] = true
	}
	return c
}

// want takes what a frontend needs from the pool, or notes who has it.
func (c *change) want(f lb.Frontend) {
	e := c.p.frontends[f.AddrPort]
	if e != nil && e.owner != c.name {
		c.refused[f.AddrPort] = f
		return
	}
	var id uint32
	if e != nil {
		id = e.value.ID
		c.drain(&f, e)
	} else {
		id = c.p.pool.frontendIDs.take()
		c.newIDs = append(c.newIDs, id)
	}
	delete(c.had, f.AddrPort)
	c.take = append(c.take, taken{f.AddrPort, c.newEntry(id, c.name, f, e, &c.puts)})
}

// newEntry takes from the pool what a frontend uses, and returns it. Old is what
// the frontend was before, nil for nothing.
func (c *change) newEntry(id uint32, owner lb.ServiceName, f lb.Frontend, old *entry, puts *[]Op) *entry {
	p := c.p
	if old == nil {
		old = &entry{}
	}
	e := &entry{owner: owner, service: Service{owner, f.Port, f.Protocol}}
	internal := p.specOf(f.Internal, f)
	e.internal = c.useTable(internal, old.internal, puts)
	// Mostly all three are equal: no need to look again.
	again := func(spec tableSpec, base *tableRef) *tableRef {
		if spec.equal(internal) {
			return p.pool.shareTable(e.internal)
		}
		return c.useTable(spec, base, puts)
	}
	external := p.specOf(f.External, f)
	e.external, e.known = again(external, old.external), again(tableSpec{backends: f.Known, algorithm: lb.Random}, old.known)
	e.value = Frontend{
		ID:       id,
		Service:  p.pool.useService(e.service, puts),
		Kind:     f.Kind,
		Internal: e.internal.view(f.Internal, internal.algorithm),
		External: e.external.view(f.External, external.algorithm),
		Known:    e.known.view(lb.View{}, lb.Random).Table,

		AffinityTimeout: f.AffinityTimeout,
		PassiveHealth:   f.Health.Avoids(p.passive),
		SlowStart:       f.Health.SlowStart,
		Filtered:        len(f.SourceRanges) > 0,
		Spill:           f.Spill,
	}
	for i, v := range f.Wider {
		spec := p.specOf(v, f)
		e.wider[i] = again(spec, old.wider[i])
		e.value.Wider[i] = e.wider[i].view(v, spec.algorithm)
	}
	e.ranges = f.SourceRanges
	return e
}

// useTable returns the table that a spec asks for: the one before it, changed in
// place, if it can be.
func (c *change) useTable(spec tableSpec, base *tableRef, puts *[]Op) *tableRef {
	if t := c.useInPlace(base, spec); t != nil {
		return t
	}
	return c.p.pool.useTable(spec, base, puts)
}

// dropEntry gives back what a frontend uses.
func (p *Planner) dropEntry(e *entry) {
	p.pool.dropTable(e.internal)
	p.pool.dropTable(e.external)
	p.pool.dropTable(e.known)
	p.pool.dropTable(e.wider[0])
	p.pool.dropTable(e.wider[1])
	p.pool.dropService(e.service)
}

// view returns the way to a table, which is nil for none.
func (t *tableRef) view(v lb.View, a lb.Algorithm) View {
	if t == nil {
		return View{NoLocal: v.NoLocal, Why: v.Why}
	}
	if a == lb.Random {
		a = lb.AlgorithmDefault
	}
	return View{Table: t.table(), Algorithm: a, Weighted: t.weighted, Widens: v.Widens, Why: v.Why}
}

// overLimit returns the problem of a change that needs more room than there
// may be, or nil. What needs no more than before is never refused.
func (c *change) overLimit() error {
	needs, before, limits := c.p.Needs(), c.before, c.p.limits
	for _, l := range []struct {
		name                string
		need, before, limit uint32
	}{
		// The ID 0 that nobody has is not counted against anybody.
		{"frontends", needs.Frontends - 1, before.Frontends - 1, limits.Frontends},
		{"slots", needs.Slots, before.Slots, limits.Slots},
		{"backends", needs.Backends - 1, before.Backends - 1, limits.Backends},
		{"services", needs.Services - 1, before.Services - 1, limits.Services},
	} {
		if l.limit > 0 && l.need > l.limit && l.need > l.before {
			return lb.Problem{
				Object: "Service " + c.name.String(),
				Reason: fmt.Sprintf("the %s map is full: %d entries needed, limit %d", l.name, l.need, l.limit),
				Remedy: fmt.Sprintf("raise --max-%s", l.name),
			}
		}
	}
	if n := c.rangesOver(); n > MaxSourceRanges {
		return lb.Problem{
			Object: "Service " + c.name.String(),
			Field:  "spec.loadBalancerSourceRanges",
			Reason: fmt.Sprintf("the source_ranges map is full: %d entries needed, limit %d", n, MaxSourceRanges),
			Remedy: "join neighbouring ranges",
		}
	}
	return nil
}

// undo gives back what was taken. It was never written, so that it need not
// wait for a grace period; what was retired meanwhile stays so.
func (c *change) undo() {
	for _, t := range c.take {
		c.p.dropEntry(t.entry)
	}
	c.p.pool.settle()
	c.undoRewrites()
	c.p.pool.forget(c.puts)
	c.p.pool.frontendIDs.give(c.newIDs...)
}

// forget removes what the given operations were to write.
func (p *pool) forget(puts []Op) {
	var backends, services []uint32
	for _, op := range puts {
		switch o := op.(type) {
		case PutBackend:
			backends = append(backends, o.ID)
			delete(p.backends, o.Backend)
			delete(p.retiredBackends, o.Backend)
		case PutTable:
			r := run{o.Backends, o.Weights, o.Cursor}
			key := r.key()
			p.regions.give(Table{Offset: o.Table.Offset, Size: r.extent()})
			delete(p.tables, key)
			delete(p.retiredTables, key)
		case PutService:
			services = append(services, o.ID)
			delete(p.services, o.Service)
			delete(p.retiredServices, o.Service)
		}
	}
	p.backendIDs.give(backends...)
	p.serviceIDs.give(services...)
}

// finish makes the change: what is new bottom-up, what ends top-down.
func (c *change) finish() {
	p := c.p
	if p.deleted && len(c.newIDs) > 0 {
		c.ops = append(c.ops, Grace{})
		p.deleted = false
	}
	c.ops = append(c.ops, c.puts...)
	c.useRanges()
	for _, t := range c.take {
		c.place(t)
		p.setDrain(t.key, c.drains[t.key])
	}
	p.pool.settle()
	c.waitFor(c.refused)
	for _, key := range slices.SortedFunc(maps.Keys(c.had), lb.AddrPort.Compare) {
		if !c.passOn(key) {
			c.remove(key)
		}
	}
	owned := make([]lb.AddrPort, 0, len(c.take))
	for _, t := range c.take {
		owned = append(owned, t.key)
	}
	p.own(c.name, owned)
	c.ops = append(c.ops, c.ended...)
}

// place puts a frontend in force, in place of what stood there.
func (c *change) place(t taken) {
	p := c.p
	old := p.frontends[t.key]
	if old == nil || old.value != t.entry.value {
		c.ops = append(c.ops, PutFrontend{Key: t.key, Value: t.entry.value})
	}
	p.frontends[t.key] = t.entry
	if old != nil && old.known != t.entry.known {
		p.lose(t.key, old.known, t.entry.known)
	}
	p.countFrontend(t.key.Addr, t.entry.value.Kind, 1)
	if old != nil {
		c.release(t.key, old)
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
	if had == nil {
		return
	}
	var stay []lb.AddrPort
	ordered := had.refs != nil
	if has != nil {
		stay, ordered = has.backends, ordered && has.refs != nil
	}
	for _, b := range without(had.backends, stay, ordered) {
		p.losses = append(p.losses, Loss{Frontend: key, Backend: b})
	}
}

// without returns the backends of one list that are not in the other. Nothing is
// looked up where both are in order, as large tables of this process are; those of
// an earlier one may be in any.
func without(all, others []lb.AddrPort, ordered bool) (left []lb.AddrPort) {
	if !ordered {
		has := make(map[lb.AddrPort]bool, len(others))
		for _, o := range others {
			has[o] = true
		}
		return slices.DeleteFunc(slices.Clone(all), func(b lb.AddrPort) bool { return has[b] })
	}
	for _, b := range all {
		for len(others) > 0 && others[0] != b && others[0].Compare(b) < 0 {
			others = others[1:]
		}
		if len(others) > 0 && others[0] == b {
			others = others[1:]
			continue
		}
		left = append(left, b)
	}
	return left
}

// remove ends a frontend.
func (c *change) remove(key lb.AddrPort) {
	p := c.p
	e := p.frontends[key]
	delete(p.frontends, key)
	delete(p.draining, key)
	p.lose(key, e.known, nil)
	c.release(key, e)
	p.writeAddress(key.Addr, &c.ops)
	c.ops = append(c.ops, DeleteFrontend{Key: key})
	p.pool.retiredFrontends = append(p.pool.retiredFrontends, retiredFrontend{e.value.ID, p.pool.time})
	p.deleted, p.deletedAt = true, p.pool.time
}

// waitFor notes what the Service wants and others have, in place of what it
// waited for before.
func (c *change) waitFor(refused map[lb.AddrPort]lb.Frontend) {
	p := c.p
	for key, waiting := range p.wanting {
		if _, still := refused[key]; !still {
			delete(waiting, c.name)
		}
		if len(waiting) == 0 {
			delete(p.wanting, key)
		}
	}
	for key, f := range refused {
		if p.wanting[key] == nil {
			p.wanting[key] = map[lb.ServiceName]lb.Frontend{}
		}
		p.wanting[key][c.name] = f
	}
}

// passOn gives a frontend that the Service no longer wants to one that waits
// for it, the first by name; false if none does.
func (c *change) passOn(key lb.AddrPort) bool {
	p := c.p
	waiting := slices.SortedFunc(maps.Keys(p.wanting[key]), lb.ServiceName.Compare)
	if len(waiting) == 0 {
		return false
	}
	heir := waiting[0]
	f := p.wanting[key][heir]
	delete(p.wanting[key], heir)
	e := c.newEntry(p.frontends[key].value.ID, heir, f, nil, &c.ops)
	p.ranges.use(e.value.Service, e.ranges, &c.ops)
	delete(p.draining, key)
	c.place(taken{key, e})
	p.own(heir, append(p.owned[heir], key))
	return true
}

// own says which frontends a Service has.
func (p *Planner) own(name lb.ServiceName, keys []lb.AddrPort) {
	if len(keys) == 0 {
		delete(p.owned, name)
		return
	}
	p.owned[name] = keys
}
