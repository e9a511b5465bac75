package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// tableSpec is what a table is for.
type tableSpec struct {
	backends  []lb.AddrPort // sorted, without duplicates
	weights   []uint32      // of the backends, nil where all are equal
	algorithm lb.Algorithm
	size      uint32 // slots of a table for hashes that was asked for, 0: by the backends
	// Of the external view of a carried frontend: the Service port, which shares the table
	// with no other, and all backends that it still has.
	owner   Service
	members []lb.AddrPort
}

// carried says whether clients of a carried frontend choose from the table.
func (s tableSpec) carried() bool { return s.owner != Service{} }

// specsOf returns what the tables of a frontend are for, in the order of
// Frontend.Tables. Algorithms that fill their tables alike share them.
func (p *Planner) specsOf(name lb.ServiceName, f lb.Frontend) [numTables]tableSpec {
	specs := [numTables]tableSpec{membersTable: {backends: f.Members, algorithm: lb.Random}}
	for i, v := range f.Views {
		spec := tableSpec{backends: v.Backends, weights: v.Weights, algorithm: f.Or(p.defaults).Algorithm}
		if i == lb.External {
			spec.algorithm = cmp.Or(f.ExternalAlgorithm, spec.algorithm)
		}
		if spec.algorithm.Hashed() {
			spec.size = f.TableSize
		}
		specs[i] = spec
	}
	if external := &specs[lb.External]; f.Carried && external.algorithm.Hashed() {
		external.owner, external.members = Service{name, f.Port, f.Protocol}, f.Members
	}
	return specs
}

// equal says whether both ask for the same table and algorithm.
func (s tableSpec) equal(o tableSpec) bool {
	return s.algorithm == o.algorithm && s.size == o.size && s.owner == o.owner && sameBackends(s.backends, o.backends) && slices.Equal(s.weights, o.weights)
}

// sameBackends is slices.Equal, but sees at once that a list is the same in memory.
func sameBackends(a, b []lb.AddrPort) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// run is what a table holds: slots, and what the algorithm needs behind them.
type run struct {
	slots   []uint32 // backend IDs
	weights []uint32 // of the slots, nil for none
	cursor  bool     // one slot more counts how many were given out
	inPlace bool     // slots change one by one, so they have to be there
	owner   Service  // that shares it with no other, the zero Service for all
}

// dense returns the dense table of the same backends, false where there is none: their
// IDs are not consecutive, a backend has several slots, or more than slots is needed.
func (r run) dense() (Table, bool) {
	if r.weights != nil || r.cursor || r.inPlace {
		return Table{}, false
	}
	n, first := uint32(len(r.slots)), slices.Min(r.slots)
	if slices.Max(r.slots)-first >= n {
		return Table{}, false
	}
	named := make([]bool, n)
	for _, id := range r.slots {
		if named[id-first] {
			return Table{}, false
		}
		named[id-first] = true
	}
	return Table{Offset: DenseSlot | first, Size: n}, true
}

// extent is how many slots of the map the run takes.
func (r run) extent() uint32 {
	n := len(r.slots) + len(r.weights)
	if r.cursor {
		n++
	}
	return uint32(n)
}

// extent is how many slots of the map the table of a spec takes.
func (s tableSpec) extent() uint32 {
	n, weights := uint32(len(s.backends)), uint32(0)
	switch {
	case n == 0:
		return 0
	case s.algorithm.Hashed():
		return s.slots()
	case s.algorithm == lb.LC:
		return n
	case s.algorithm == lb.WLC || s.algorithm == lb.SED || s.algorithm == lb.NQ:
		return n + uint32(len(s.weights))
	case s.algorithm != lb.RR && s.weights != nil:
		n = 0
		for _, w := range reduce(s.weights) {
			n += w
		}
		if s.algorithm == lb.P2C || s.algorithm == lb.Latency {
			weights = n
		}
	}
	if hasCursor(s.algorithm) {
		n++
	}
	return n + weights
}

// holds says whether a table is the one that a spec asks for, where each backend has one
// slot and there is nothing else.
func (p *pool) holds(t *tableRef, s tableSpec) bool {
	if t == nil || s.weights != nil || s.algorithm.Hashed() || hasCursor(s.algorithm) {
		return false
	}
	plain := t.slots == nil && t.region.Size <= t.size && t.size == uint32(len(t.ids))
	return plain && p.names(t, s.backends)
}

// names says whether a table has these backends, in this order.
func (p *pool) names(t *tableRef, backends []lb.AddrPort) bool {
	if t.large != nil {
		return sameBackends(t.large.backends, backends)
	}
	return slices.EqualFunc(t.ids, backends, func(id uint32, b lb.AddrPort) bool { return p.backends.at(id).at == compacted(b) })
}

// longKey is from how many bytes on a key is a digest.
const longKey = 4096

// key is equal for equal runs only.
func (r run) key() string {
	b := r.bytes()
	if len(b) < longKey && r.owner == (Service{}) {
		return string(b)
	}
	sum := sha256.Sum256(b)
	key := string(sum[:]) + "d"
	if r.owner != (Service{}) {
		key += r.owner.String()
	}
	return key
}

func (r run) bytes() []byte {
	b := make([]byte, 0, 4*len(r.slots)+4*len(r.weights)+1)
	for _, words := range [][]uint32{r.slots, r.weights} {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
	}
	switch { // a multiple of four is a run of slots alone, and one more a digest
	case r.cursor:
		b = append(b, 'c', 'c')
	case r.weights != nil:
		b = append(b, 'w', 'w', 'w')
	}
	return b
}

// hasCursor says whether the tables of an algorithm have a cursor.
func hasCursor(a lb.Algorithm) bool { return a == lb.RR || a == lb.WRR }

// fill returns what the table of a spec holds, apart from those for hashes; ids are
// those of its backends.
func (s tableSpec) fill(ids []uint32) run {
	switch s.algorithm {
	case lb.RR:
		return run{slots: ids, cursor: true}
	case lb.WRR:
		return run{slots: interleave(ids, reduce(s.weights)), cursor: true}
	case lb.LC:
		return run{slots: ids}
	case lb.WLC, lb.SED, lb.NQ:
		return run{slots: ids, weights: s.weights}
	case lb.P2C, lb.Latency:
		slots, weights := repeat(ids, reduce(s.weights))
		return run{slots: slots, weights: weights}
	default:
		slots, _ := repeat(ids, reduce(s.weights))
		return run{slots: slots}
	}
}

// hashed returns the slots of a table for hashes, by the places of their backends in
// the spec. Its size follows from the number of backends unless the Service asks for
// one.
func (s tableSpec) hashed(key maglev.Key) []uint32 {
	backends := make([]maglev.Backend, len(s.backends))
	for i, b := range s.backends {
		backends[i] = maglev.Backend{Name: backendName(b), Weight: 1}
		if s.weights != nil {
			backends[i].Weight = s.weights[i]
		}
	}
	fill := maglev.Fill
	if s.algorithm == lb.Stable {
		fill = maglev.FillStable
	}
	return fill(key, backends, s.slots())
}

// backendName is what a backend is on every node.
func backendName(b lb.AddrPort) string {
	addr := b.Addr.As16()
	name := binary.BigEndian.AppendUint16(addr[:], b.Port)
	return string(append(name, uint8(b.Protocol)))
}
