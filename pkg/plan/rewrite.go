package plan

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// A table for hashes is large, and when a backend comes or goes most of its slots
// stay. If all that use it go the same way, the slots that differ are written in
// place: that is less to write, and every flow whose slot stays keeps its slot. A
// slot is one store, and whatever mixture a program meets, every slot names a
// backend that is there.

// rewrite is a table that becomes another in place.
type rewrite struct {
	spec tableSpec // what it becomes
	uses int       // views that name it before
	done bool
	had  tableRef // before, to undo it
}

// rewritable returns the tables of a Service that all their users want to be the
// same other table, of the same size.
func (p *Planner) rewritable(name lb.ServiceName, wanted []lb.Frontend) map[*tableRef]*rewrite {
	var uses map[*tableRef]int
	var out map[*tableRef]*rewrite // nil for most Services
	note := func(t *tableRef, spec tableSpec) {
		if !t.isHashed() {
			return
		}
		if out == nil {
			uses, out = map[*tableRef]int{}, map[*tableRef]*rewrite{}
		}
		if out[t] == nil {
			out[t] = &rewrite{spec: spec}
		}
		if out[t].spec.equal(spec) {
			uses[t]++
		}
	}
	for _, f := range wanted {
		e := p.frontends[f.AddrPort]
		if e == nil || e.claim.Service != name || !slices.ContainsFunc(e.tables[:], (*tableRef).isHashed) {
			continue
		}
		for i, spec := range p.specsOf(name, f) {
			note(e.tables[i], spec)
		}
	}
	maps.DeleteFunc(out, func(t *tableRef, r *rewrite) bool {
		r.uses = t.uses
		return uses[t] != t.uses || !r.spec.algorithm.Hashed() || len(r.spec.backends) == 0 || r.spec.slots() != t.size
	})
	return out
}

// isHashed says whether a table is one for hashes; nil is none.
func (t *tableRef) isHashed() bool { return t != nil && t.slots != nil }

// slots returns how many slots a table for hashes has.
func (s tableSpec) slots() uint32 {
	if s.carried() {
		return max(s.size, carriedSlots(len(s.backends)))
	}
	if s.size != 0 {
		return s.size
	}
	return maglev.SizeFor(len(s.backends))
}

// useInPlace returns the table that a view has already, made what it should be, or
// nil if that cannot be done in place.
func (c *change) useInPlace(t *tableRef, spec tableSpec) *tableRef {
	r := c.rewrites[t]
	if t == nil || r == nil || !r.spec.equal(spec) {
		return nil
	}
	if !r.done && !c.p.pool.rewrite(t, r, &c.puts) {
		delete(c.rewrites, t)
		return nil
	}
	return c.p.pool.shareTable(t)
}

// rewrite makes a table another in place; false if that is somewhere already, or if
// a view that the change has brought wants the table as it is.
func (p *pool) rewrite(t *tableRef, r *rewrite, ops *[]Op) bool {
	if t.uses != r.uses {
		return false
	}
	var puts []Op
	now, ids := p.fill(r.spec, &puts)
	name := now.key()
	if other := p.tables[name]; other != nil && other != t {
		p.release(ids)
		*ops = append(*ops, puts...)
		return false
	}
	r.done, r.had = true, *t
	p.release(t.ids)
	op := PutSlots{Table: t.table()}
	was := p.keepHistory(t, r.spec, now.slots)
	for i, id := range now.slots {
		if id == t.slots[i] {
			continue
		}
		change := SlotChange{Index: uint32(i), To: id, Was: Owners{t.slots[i]}}
		if was != nil {
			change.Was = was[i]
		}
		op.Slots = append(op.Slots, change)
	}
	*ops = append(*ops, puts...)
	if len(op.Slots) > 0 {
		*ops = append(*ops, op)
	}
	delete(p.tables, t.key)
	p.tables[name] = t
	t.key, t.slots, t.was, t.ids = name, now.slots, was, ids
	return true
}

// undoRewrites makes tables again what they were.
func (c *change) undoRewrites() {
	p := c.p.pool
	for t, r := range c.rewrites {
		if !r.done {
			continue
		}
		for _, id := range r.had.ids {
			p.reuse(id) // it is there: at most retired
		}
		p.release(t.ids)
		delete(p.tables, t.key)
		t.key, t.slots, t.was, t.ids = r.had.key, r.had.slots, r.had.was, r.had.ids
		p.tables[t.key] = t
	}
}
