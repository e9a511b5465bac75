package plan

import "github.com/headgate/headgate/pkg/lb"

// deriveFrom is the number of backends from which on a table is derived from its
// predecessor, so that a change looks up only what it adds or removes, and copies the
// rest. Most changes of a large Service are of a few backends.
const deriveFrom = 256

// delta is how a derived table differs from its base, the one that the frontend had: by the IDs of
// backends. Until the change is committed, it uses only what is added.
type delta struct {
	base           *tableRef
	removed, added []uint32
}

// derive returns the IDs of what a table of these backends uses, derived from its base.
func (p *pool) derive(base *tableRef, backends []lb.AddrPort, ops *[]Op) ([]uint32, *delta) {
	d, ids := &delta{base: base}, make([]uint32, 0, len(backends))
	had, hadIDs := base.large.backends, base.ids
	for len(backends) > 0 {
		n := equalAtFirst(had, backends)
		ids = append(ids, hadIDs[:n]...)
		had, hadIDs, backends = had[n:], hadIDs[n:], backends[n:]
		switch {
		case len(backends) == 0:
		case len(had) > 0 && had[0].Compare(backends[0]) < 0:
			d.removed = append(d.removed, hadIDs[0])
			had, hadIDs = had[1:], hadIDs[1:]
		default:
			id := p.useBackend(backends[0], ops)
			d.added, ids = append(d.added, id), append(ids, id)
			backends = backends[1:]
		}
	}
	d.removed = append(d.removed, hadIDs...)
	return ids, d
}

// equalAtFirst returns how many backends are the same at the beginning of two lists.
func equalAtFirst(a, b []lb.AddrPort) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// useBackend uses a backend once more, which may be none yet, and returns its ID.
func (p *pool) useBackend(b lb.AddrPort, ops *[]Op) uint32 {
	id := p.backends.numberOf(compacted(b))
	if id == 0 {
		id = p.backendIDs.alloc()
		p.putBackend(b, id, ops)
	}
	p.reuse(id)
	return id
}

// transfer has a table take over the uses of its base, once that is unused.
func (p *pool) transfer(d *delta, t *tableRef) {
	d.base.large.successor, t.large.delta = t, d // of several the last one gets them
	p.derived = append(p.derived, t)
}

// commit ends the transfers: every table that is used uses all its backends.
func (p *pool) commit() {
	for _, t := range p.derived {
		d := t.large.delta
		if d == nil {
			continue // aborted
		}
		t.large.delta = nil
		base := d.base.large
		inherits := base.successor == t
		if inherits {
			base.successor = nil
		}
		if inherits && d.base.uses == 0 {
			p.release(d.removed) // the rest is passed on
			continue
		}
		for _, id := range t.ids {
			p.reuse(id)
		}
		p.release(d.added) // they were used already
	}
	p.derived = nil
}

// abort ends what a table uses that was never committed.
func (p *pool) abort(t *tableRef) {
	d := t.large.delta
	t.large.delta = nil
	p.release(d.added)
	base := d.base.large
	if base.successor != t {
		return
	}
	base.successor = nil
	if d.base.uses == 0 {
		p.release(d.base.ids)
	}
}
