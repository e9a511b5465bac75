package plan

import (
	"net/netip"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// pool holds the shared things (backends, tables, names of Service ports) with
// how often each is used. What nobody uses any more is retired: it keeps its
// ID until a sweep, since a running program may still hold it, and whoever
// wants it again before that simply has it back.
type pool struct {
	backendIDs *idPool
	backends   *keyed[lb.AddrPort, backendRef]
	regions    *regions
	tables     map[string]*tableRef // by content
	serviceIDs *idPool
	services   *keyed[Service, serviceRef]

	adopted map[Table]adoptedTable // while adopting, nil afterwards

	homes map[uint32]home // of backends of carried frontends, by ID

	key maglev.Key // of tables for hashes

	runs  lengths // of slots, of tables that do not change in place
	dense uint64  // slots of dense tables, which take some when their IDs are not consecutive any more

	deriveFrom int         // backends from which on tables are derived
	derived    []*tableRef // tables of a change, until it is committed

	time             Mark                 // when what retires now does so
	retiredFrontends map[lb.AddrPort]Mark // since when they are gone, or have another place
	// retiredAddresses are deleted, but what is planned before may be written before that.
	retiredAddresses map[netip.Addr]Mark
	retiredBackends  map[lb.AddrPort]*backendRef
	retiredTables    map[string]*tableRef
	retiredSlots     uint64 // of these tables
	retiredServices  map[Service]*serviceRef
}

type backendRef struct {
	backend lb.AddrPort
	id      uint32
	uses    int32 // tables that name it
	retired Mark  // when that became none
}

type tableRef struct {
	region   Table  // all that it takes of the slots map: of a dense table nothing
	size     uint32 // slots
	key      string // its content
	weighted bool
	slots    []uint32      // what they hold, of a table for hashes; nil otherwise
	was      []Owners      // what they named before, of a carried frontend's; nil for nothing
	backends []lb.AddrPort // without duplicates
	weights  []uint32      // of the backends, as the table shows them; nil where they are equal, or it is one for hashes
	uses     int           // views that name it
	retired  Mark          // when that became none

	// Of large tables that this process has made: the IDs of its backends, and
	// what counts their uses.
	ids       []uint32
	refs      []*backendRef
	delta     *delta    // while a change is made that brings it
	successor *tableRef // derived from it, gets its references
}

// table returns its slots.
func (t *tableRef) table() Table { return Table{Offset: t.region.Offset, Size: t.size} }

// extent returns how many slots it takes, or would if its IDs were not consecutive: what
// counts for limits is not a matter of chance.
func (t *tableRef) extent() uint32 { return max(t.region.Size, t.size) }

type serviceRef struct {
	service Service
	id      uint32
	uses    int32 // frontends that name it
	retired Mark  // when that became none
}

// newPool returns an empty pool.
func newPool() *pool {
	return &pool{
		backendIDs: newIDPool(), backends: newKeyed(func(r *backendRef) lb.AddrPort { return r.backend }),
		regions: &regions{}, tables: map[string]*tableRef{},
		serviceIDs: newIDPool(), services: newKeyed(func(r *serviceRef) Service { return r.service }),
		homes:            map[uint32]home{},
		retiredFrontends: map[lb.AddrPort]Mark{},
		retiredAddresses: map[netip.Addr]Mark{},
		retiredBackends:  map[lb.AddrPort]*backendRef{},
		retiredTables:    map[string]*tableRef{},
		retiredServices:  map[Service]*serviceRef{},
		deriveFrom:       deriveFrom,
		runs:             lengths{count: map[uint32]int{}},
	}
}

// useTable returns the table that a spec asks for, nil for no backends, and
// appends to ops what has to be written first. Base is the table that it comes
// after, nil for none.
func (p *pool) useTable(spec tableSpec, base *tableRef, ops *[]Op) *tableRef {
	if len(spec.backends) == 0 {
		return nil
	}
	if spec.algorithm.Hashed() {
		return p.useHashed(spec, base, ops)
	}
	ids, refs, d := p.useBackends(spec.backends, base, ops)
	r := spec.fill(ids)
	t := p.tableOf(r, ops)
	if t.uses > 0 { // it holds them already
		if t.uses++; d != nil {
			p.release(d.added)
		} else {
			p.dropBackends(spec.backends)
		}
		return t
	}
	p.recallTable(t.key)
	t.backends, t.weights, t.ids, t.refs = spec.backends, spec.weights, ids, refs
	if refs == nil {
		t.ids = nil
	}
	if t.uses++; d != nil {
		p.transfer(d, t)
	}
	return t
}

// useHashed does the same for tables for hashes.
func (p *pool) useHashed(spec tableSpec, base *tableRef, ops *[]Op) *tableRef {
	r, backends := p.fill(spec, ops)
	t := p.tableOf(r, ops)
	if t.uses > 0 {
		p.dropBackends(backends) // the table holds them already
	} else {
		t.slots, t.backends = r.slots, backends
	}
	p.recallTable(t.key)
	t.uses++
	p.inherit(t, base, spec, ops)
	return t
}

// tableOf returns the table that holds a run, a new one if there is none. A run that an
// earlier agent wrote stays, though it could be dense.
func (p *pool) tableOf(r run, ops *[]Op) *tableRef {
	key := r.key()
	if t := p.tables[key]; t != nil {
		return t
	}
	t := &tableRef{key: key, size: uint32(len(r.slots)), weighted: r.weights != nil}
	if dense, ok := r.dense(); ok {
		t.key, t.region.Offset = dense.key(), dense.Offset
		if has := p.tables[t.key]; has != nil {
			return has
		}
		p.dense += uint64(t.size)
	} else {
		t.region = p.regions.alloc(r.extent())
		p.noteRun(t.region.Size, r.inPlace)
		*ops = append(*ops, PutTable{Table: t.table(), Backends: r.slots, Weights: r.weights, Cursor: r.cursor, key: key})
	}
	p.tables[t.key] = t
	return t
}

// fill returns what a table for hashes holds, and the backends that it names,
// each used once. There may be more backends than slots, or one of too little
// weight: what has no slot is not used, or an adopted table would put it again.
func (p *pool) fill(spec tableSpec, ops *[]Op) (run, []lb.AddrPort) {
	slots := spec.hashed(p.key)
	named := make([]bool, len(spec.backends))
	for _, place := range slots {
		named[place] = true
	}
	var backends []lb.AddrPort
	among := make([]uint32, len(spec.backends)) // those that have slots
	for place, b := range spec.backends {
		if named[place] {
			among[place] = uint32(len(backends))
			backends = append(backends, b)
		}
	}
	ids, _, _ := p.useBackends(backends, nil, ops)
	for i, place := range slots {
		slots[i] = ids[among[place]]
	}
	return run{slots: slots, inPlace: true, owner: spec.owner}, backends
}

// useBackends uses backends once more and returns their IDs; of many also what
// counts their uses, and where there is a base, how they differ from those.
func (p *pool) useBackends(backends []lb.AddrPort, base *tableRef, ops *[]Op) (ids []uint32, refs []*backendRef, d *delta) {
	if base != nil && base.refs != nil && len(backends) >= p.deriveFrom {
		return p.derive(base, backends, ops)
	}
	ids, refs = make([]uint32, len(backends)), p.putMissing(backends, ops)
	for i, r := range refs {
		p.reuse(backends[i], r)
		ids[i] = r.id
	}
	if len(backends) < p.deriveFrom {
		refs = nil
	}
	return ids, refs, nil
}

// putMissing puts those of the backends of a table that are not there, so that their
// IDs and those of the others follow each other, if that can be. It returns all of them.
func (p *pool) putMissing(backends []lb.AddrPort, ops *[]Op) []*backendRef {
	refs, missing, others := make([]*backendRef, len(backends)), []int(nil), []uint32(nil)
	for i, b := range backends {
		if refs[i] = p.backends.get(b); refs[i] == nil {
			missing = append(missing, i)
		} else {
			others = append(others, refs[i].id)
		}
	}
	if len(missing) == 0 {
		return refs
	}
	for i, id := range p.backendIDs.allocFor(others, len(missing)) {
		refs[missing[i]] = p.putBackend(backends[missing[i]], id, ops)
	}
	return refs
}

// shareTable uses a table once more; nil stays nil.
func (p *pool) shareTable(t *tableRef) *tableRef {
	if t != nil {
		t.uses++
	}
	return t
}

// dropTable ends one use of a table; nil is allowed.
func (p *pool) dropTable(t *tableRef) {
	if t == nil {
		return
	}
	if t.uses--; t.uses > 0 {
		return
	}
	if t.table().Dense() { // nothing is to be freed
		delete(p.tables, t.key)
		p.dense -= uint64(t.size)
	} else {
		p.retireTable(t)
	}
	switch {
	case t.delta != nil:
		p.abort(t)
	case t.successor == nil: // else what it uses is passed on
		p.dropAll(t)
	}
}

// retireTable has the slots of a table wait for a sweep.
func (p *pool) retireTable(t *tableRef) {
	t.retired = p.time
	p.retiredTables[t.key] = t
	p.retiredSlots += uint64(t.region.Size)
}

// recallTable has a table wait for none, if it does.
func (p *pool) recallTable(key string) {
	if t := p.retiredTables[key]; t != nil {
		delete(p.retiredTables, key)
		p.retiredSlots -= uint64(t.region.Size)
	}
}

// noteRun notes how long a run is.
func (p *pool) noteRun(slots uint32, inPlace bool) {
	if !inPlace {
		p.runs.add(slots)
	}
}

// freeRun has others use the slots of a table.
func (p *pool) freeRun(t *tableRef) {
	p.regions.free(t.region)
	if t.slots == nil {
		p.runs.remove(t.region.Size)
	}
}

func (p *pool) useBackend(b lb.AddrPort, ops *[]Op) *backendRef {
	r := p.backends.get(b)
	if r == nil {
		r = p.putBackend(b, p.backendIDs.alloc(), ops)
	}
	delete(p.retiredBackends, b)
	r.uses++
	return r
}

func (p *pool) putBackend(b lb.AddrPort, id uint32, ops *[]Op) *backendRef {
	r := p.backends.add(backendRef{backend: b, id: id})
	*ops = append(*ops, PutBackend{ID: id, Backend: b})
	return r
}

func (p *pool) dropBackends(backends []lb.AddrPort) {
	for _, b := range backends {
		p.drop(b, p.backends.get(b))
	}
}

func (p *pool) useService(s Service, ops *[]Op) uint32 {
	r := p.services.get(s)
	if r == nil {
		r = p.services.add(serviceRef{service: s, id: p.serviceIDs.alloc()})
		*ops = append(*ops, PutService{ID: r.id, Service: s})
	}
	delete(p.retiredServices, s)
	r.uses++
	return r.id
}

func (p *pool) dropService(s Service) {
	r := p.services.get(s)
	if r.uses--; r.uses == 0 {
		r.retired = p.time
		p.retiredServices[s] = r
	}
}
