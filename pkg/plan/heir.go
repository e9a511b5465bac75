package plan

import "github.com/headgate/headgate/pkg/lb"

// heirFrom is from how many backends on a table is made of the one that it comes
// after: a change of it costs what changes, and copying, but no look-ups of all
// that stays. Most changes of a large Service are of a few backends.
const heirFrom = 256

// use is a backend that a table uses.
type use struct {
	backend lb.AddrPort
	ref     *backendRef
}

// descent is how a table that a change brings differs from its base, the one that
// the frontend had. Until the change is settled, it uses only what has come.
type descent struct {
	base       *tableRef
	gone, come []use
}

// derive returns what a table of these backends uses, by its base.
func (p *pool) derive(base *tableRef, backends []lb.AddrPort, ops *[]Op) ([]uint32, []*backendRef, *descent) {
	d := &descent{base: base}
	ids, refs := make([]uint32, 0, len(backends)), make([]*backendRef, 0, len(backends))
	had, i := base.backends, 0
	for _, b := range backends {
		for i < len(had) && had[i] != b && had[i].Compare(b) < 0 {
			d.gone = append(d.gone, use{had[i], base.refs[i]})
			i++
		}
		if i < len(had) && had[i] == b {
			ids, refs = append(ids, base.ids[i]), append(refs, base.refs[i])
			i++
			continue
		}
		r := p.useBackend(b, ops)
		d.come = append(d.come, use{b, r})
		ids, refs = append(ids, r.id), append(refs, r)
	}
	for ; i < len(had); i++ {
		d.gone = append(d.gone, use{had[i], base.refs[i]})
	}
	return ids, refs, d
}

// bequeath has a table take over what its base uses, once nobody uses that.
func (p *pool) bequeath(d *descent, t *tableRef) {
	d.base.heir, t.descent = t, d // of several the last one inherits
	p.heirs = append(p.heirs, t)
}

// settle ends the taking over: every table that is used uses all its backends.
func (p *pool) settle() {
	for _, t := range p.heirs {
		d := t.descent
		if d == nil {
			continue // given back
		}
		t.descent = nil
		heir := d.base.heir == t
		if heir {
			d.base.heir = nil
		}
		if heir && d.base.uses == 0 {
			p.release(d.gone) // the rest is passed on
			continue
		}
		for i, r := range t.refs {
			p.reuse(t.backends[i], r)
		}
		p.release(d.come) // they were used already
	}
	p.heirs = nil
}

// giveUp ends what a table uses that was never settled.
func (p *pool) giveUp(t *tableRef) {
	d := t.descent
	t.descent = nil
	p.release(d.come)
	if d.base.heir != t {
		return
	}
	d.base.heir = nil
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
