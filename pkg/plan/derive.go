package plan

import "github.com/headgate/headgate/pkg/lb"

// deriveFrom is the number of backends from which on a table is derived from its
// predecessor, so that a change looks up only what it adds or removes, and copies the
// rest. Most changes of a large Service are of a few backends.
const deriveFrom = 256

// use is a backend that a table uses.
type use struct {
	backend lb.AddrPort
	ref     *backendRef
}

// delta is how a derived table differs from its base, the one that the frontend had.
// Until the change is committed, it uses only what is added.
type delta struct {
	base           *tableRef
	removed, added []use
}

// derive returns what a table of these backends uses, derived from its base.
func (p *pool) derive(base *tableRef, backends []lb.AddrPort, ops *[]Op) ([]uint32, []*backendRef, *delta) {
	d := &delta{base: base}
	ids, refs := make([]uint32, 0, len(backends)), make([]*backendRef, 0, len(backends))
	had, i := base.backends, 0
	for _, b := range backends {
		for i < len(had) && had[i] != b && had[i].Compare(b) < 0 {
			d.removed = append(d.removed, use{had[i], base.refs[i]})
			i++
		}
		if i < len(had) && had[i] == b {
			ids, refs = append(ids, base.ids[i]), append(refs, base.refs[i])
			i++
			continue
		}
		r := p.useBackend(b, ops)
		d.added = append(d.added, use{b, r})
		ids, refs = append(ids, r.id), append(refs, r)
	}
	for ; i < len(had); i++ {
		d.removed = append(d.removed, use{had[i], base.refs[i]})
	}
	return ids, refs, d
}

// transfer has a table take over the references of its base, once that is unused.
func (p *pool) transfer(d *delta, t *tableRef) {
	d.base.successor, t.delta = t, d // of several the last one gets them
	p.derived = append(p.derived, t)
}

// commit ends the transfers: every table that is used uses all its backends.
func (p *pool) commit() {
	for _, t := range p.derived {
		d := t.delta
		if d == nil {
			continue // aborted
		}
		t.delta = nil
		inherits := d.base.successor == t
		if inherits {
			d.base.successor = nil
		}
		if inherits && d.base.uses == 0 {
			p.release(d.removed) // the rest is passed on
			continue
		}
		for i, r := range t.refs {
			p.reuse(t.backends[i], r)
		}
		p.release(d.added) // they were used already
	}
	p.derived = nil
}

// abort ends what a table uses that was never committed.
func (p *pool) abort(t *tableRef) {
	d := t.delta
	t.delta = nil
	p.release(d.added)
	if d.base.successor != t {
		return
	}
	d.base.successor = nil
	if d.base.uses == 0 {
		p.dropAll(d.base)
	}
}

// dropAll ends the uses of all backends of a table.
func (p *pool) dropAll(t *tableRef) {
	if t.refs == nil {
		p.dropBackends(t.backends)
		return
	}
	for i, r := range t.refs {
		p.drop(t.backends[i], r)
	}
}

// release ends uses of backends.
func (p *pool) release(uses []use) {
	for _, u := range uses {
		p.drop(u.backend, u.ref)
	}
}

// reuse uses a backend once more that is there.
func (p *pool) reuse(b lb.AddrPort, r *backendRef) {
	if r.uses++; r.uses == 1 {
		delete(p.retiredBackends, b)
	}
}

func (p *pool) drop(b lb.AddrPort, r *backendRef) {
	if r.uses--; r.uses == 0 {
		r.retired = p.time
		p.retiredBackends[b] = r
	}
}
