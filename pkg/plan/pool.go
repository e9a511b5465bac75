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
	backends   *keyed[compact, backendRef] // by ID
	regions    *regions
	tables     map[string]*tableRef // by content
	serviceIDs *idPool
	services   *keyed[Service, serviceRef] // by ID

	adopted map[Table]*tableRef // while adopting, nil afterwards

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
	retiredBackends  map[uint32]Mark // by ID, since when no table names them
	retiredTables    map[string]*tableRef
	retiredSlots     uint64          // of these tables
	retiredServices  map[uint32]Mark // by ID, since when no frontend names them
}

// backendRef is a backend of the cluster, found by its ID, too. It takes 24 bytes and no pointer, where
// it took 48 with an lb.AddrPort, the ID, and when it retired.
type backendRef struct {
	at   compact
	uses int32 // tables that name it
}

// tableRef is a table. Of a backend it has the ID, 4 bytes; its address stands in the backendRef.
type tableRef struct {
	region   Table  // all that it takes of the slots map: of a dense table nothing
	size     uint32 // slots
	weighted bool
	key      string   // its content
	ids      []uint32 // of its backends, without duplicates
	slots    []uint32 // what they hold, of a table for hashes; nil otherwise
	was      []Owners // what they named before, of a carried frontend's; nil for nothing
	weights  []uint32 // of the backends, as the table shows them; nil where they are equal, or it is one for hashes
	uses     int      // views that name it
	retired  Mark     // when that became none

	large *large // nil for few backends, and tables that an earlier process made
}

// large is what a large table has besides, so that others can be derived from it.
type large struct {
	backends  []lb.AddrPort // in order; the list is that of lb, which keeps it for large Services
	delta     *delta        // while a change is made that brings the table
	successor *tableRef     // derived from it, gets its uses of backends
}

// table returns its slots.
func (t *tableRef) table() Table { return Table{Offset: t.region.Offset, Size: t.size} }

// extent returns how many slots it takes, or would if its IDs were not consecutive: what
// counts for limits is not a matter of chance.
func (t *tableRef) extent() uint32 { return max(t.region.Size, t.size) }

// serviceRef is a Service port, found by its ID, too: frontends have that alone.
type serviceRef struct {
	service Service
	uses    int32 // frontends that name it
}

// newPool returns an empty pool.
func newPool() *pool {
	return &pool{
		backendIDs: newIDPool(), backends: newKeyed(func(r *backendRef) compact { return r.at }),
		regions: &regions{}, tables: map[string]*tableRef{},
		serviceIDs: newIDPool(), services: newKeyed(func(r *serviceRef) Service { return r.service }),
		homes:            map[uint32]home{},
		retiredFrontends: map[lb.AddrPort]Mark{},
		retiredAddresses: map[netip.Addr]Mark{},
		retiredBackends:  map[uint32]Mark{},
		retiredTables:    map[string]*tableRef{},
		retiredServices:  map[uint32]Mark{},
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
	ids, d := p.useBackends(spec.backends, base, ops)
	t := p.tableOf(spec.fill(ids), ops)
	if t.uses > 0 { // it holds them already
		if t.uses++; d != nil {
			p.release(d.added)
		} else {
			p.release(ids)
		}
		return t
	}
	p.recallTable(t.key)
	t.ids, t.weights, t.large = ids, spec.weights, nil
	if len(ids) >= p.deriveFrom {
		t.large = &large{backends: spec.backends}
	}
	if t.uses++; d != nil {
		p.transfer(d, t)
	}
	return t
}

// useHashed does the same for tables for hashes.
func (p *pool) useHashed(spec tableSpec, base *tableRef, ops *[]Op) *tableRef {
	r, ids := p.fill(spec, ops)
	t := p.tableOf(r, ops)
	if t.uses > 0 {
		p.release(ids) // the table holds them already
	} else {
		t.slots, t.ids, t.large = r.slots, ids, nil
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

// fill returns what a table for hashes holds, and the IDs of the backends that it
// names, each used once. There may be more backends than slots, or one of too little
// weight: what has no slot is not used, or an adopted table would put it again.
func (p *pool) fill(spec tableSpec, ops *[]Op) (run, []uint32) {
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
	ids, _ := p.useBackends(backends, nil, ops)
	for i, place := range slots {
		slots[i] = ids[among[place]]
	}
	return run{slots: slots, inPlace: true, owner: spec.owner}, ids
}

// useBackends uses backends once more and returns their IDs; of many also, where there
// is a base, how they differ from those of that.
func (p *pool) useBackends(backends []lb.AddrPort, base *tableRef, ops *[]Op) (ids []uint32, d *delta) {
	if base != nil && base.large != nil && len(backends) >= p.deriveFrom {
		return p.derive(base, backends, ops)
	}
	ids = p.putMissing(backends, ops)
	for _, id := range ids {
		p.reuse(id)
	}
	return ids, nil
}

// putMissing puts those of the backends of a table that are not there, so that their
// IDs and those of the others follow each other, if that can be. It returns all IDs.
func (p *pool) putMissing(backends []lb.AddrPort, ops *[]Op) []uint32 {
	ids, there := make([]uint32, len(backends)), make([]uint32, 0, len(backends))
	for i, b := range backends {
		if ids[i] = p.backends.numberOf(compacted(b)); ids[i] != 0 {
			there = append(there, ids[i])
		}
	}
	if len(there) == len(ids) {
		return ids
	}
	free := p.backendIDs.allocFor(there, len(ids)-len(there))
	for i, b := range backends {
		if ids[i] == 0 {
			ids[i], free = free[0], free[1:]
			p.putBackend(b, ids[i], ops)
		}
	}
	return ids
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
	switch l := t.large; {
	case l != nil && l.delta != nil:
		p.abort(t)
	case l == nil || l.successor == nil: // else what it uses is passed on
		p.release(t.ids)
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

// putBackend puts a backend under an ID, which nothing uses yet.
func (p *pool) putBackend(b lb.AddrPort, id uint32, ops *[]Op) {
	p.backends.addAt(id, backendRef{at: compacted(b)})
	*ops = append(*ops, PutBackend{ID: id, Backend: b})
}

// backend returns the backend that has an ID.
func (p *pool) backend(id uint32) lb.AddrPort { return p.backends.at(id).at.addrPort() }

// backendsOf returns the backends of a table, nil for none.
func (p *pool) backendsOf(t *tableRef) []lb.AddrPort {
	if t == nil {
		return nil
	}
	all := make([]lb.AddrPort, len(t.ids))
	for i, id := range t.ids {
		all[i] = p.backend(id)
	}
	return all
}

// reuse uses a backend once more that is there.
func (p *pool) reuse(id uint32) {
	r := p.backends.at(id)
	if r.uses++; r.uses == 1 {
		delete(p.retiredBackends, id)
	}
}

// release ends one use of each of these backends.
func (p *pool) release(ids []uint32) {
	for _, id := range ids {
		r := p.backends.at(id)
		if r.uses--; r.uses == 0 {
			p.retiredBackends[id] = p.time
		}
	}
}

func (p *pool) useService(s Service, ops *[]Op) uint32 {
	id := p.services.numberOf(s)
	if id == 0 {
		id = p.serviceIDs.alloc()
		p.services.addAt(id, serviceRef{service: s})
		*ops = append(*ops, PutService{ID: id, Service: s})
	}
	delete(p.retiredServices, id)
	p.services.at(id).uses++
	return id
}

func (p *pool) dropService(id uint32) {
	r := p.services.at(id)
	if r.uses--; r.uses == 0 {
		p.retiredServices[id] = p.time
	}
}
