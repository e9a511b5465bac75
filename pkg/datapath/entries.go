package datapath

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Totals is how much there is in force.
type Totals struct {
	Frontends int
	Tables    int
	Slots     int // of these tables, dense ones aside
	Backends  int
	Ejected   int // backends that all clients avoid
	Failing   int // backends that these or one client avoid, or that have failures in a row
	Services  int // Service ports
	// Refusing are the IDs of Service ports that refuse everybody: no frontend has a backend. Those whose
	// backends are all on other nodes, which a traffic policy leaves out, are none of them.
	Refusing []uint32
}

// Totals counts what there is.
func (r *Reader) Totals() (t Totals, err error) {
	services, err := r.Services()
	if err != nil {
		return t, err
	}
	for range services {
		t.Services++
	}
	for _, b := range r.Backends() {
		t.Backends++
		if b.Ejected > 0 {
			t.Ejected++
		}
		if b.Failures > 0 || b.Ejected > 0 || b.EjectedByOne > 0 {
			t.Failing++
		}
	}
	seen := r.newSeenTables()
	refusing := map[uint32]bool{} // by ID, of those with a frontend
	err = r.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		t.Frontends++
		if !f.Former {
			before, known := refusing[f.Service]
			refusing[f.Service] = f.Refuses() && (before || !known)
		}
		for _, table := range f.Tables() {
			if table.Size == 0 || !seen.add(table) {
				continue
			}
			t.Tables++
			if !table.Dense() {
				t.Slots += int(table.Size)
			}
		}
		return nil
	})
	for id, is := range refusing {
		if is {
			t.Refusing = append(t.Refusing, id)
		}
	}
	return t, err
}

// seenTables tells tables apart by where they begin; only dense ones overlap.
type seenTables struct {
	slots []uint64            // a bit for each slot
	sizes []uint32            // by the first ID, that of a dense table
	more  map[plan.Table]bool // dense tables whose first ID has another size there
}

func (r *Reader) newSeenTables() seenTables {
	return seenTables{make([]uint64, r.maps.slots.len*slotsPerChunk/64+1), make([]uint32, r.maps.backends.len), map[plan.Table]bool{}}
}

// add says whether a table is new. What ends behind the maps is no table.
func (s seenTables) add(t plan.Table) bool {
	if id := t.Offset &^ plan.DenseSlot; t.Dense() {
		if id >= uint32(len(s.sizes)) || s.sizes[id] == t.Size || s.more[t] {
			return false
		}
		if s.sizes[id] == 0 {
			s.sizes[id] = t.Size
		} else {
			s.more[t] = true
		}
		return true
	}
	word, bit := t.Offset/64, uint64(1)<<(t.Offset%64)
	if word >= uint32(len(s.slots)) || s.slots[word]&bit != 0 {
		return false
	}
	s.slots[word] |= bit
	return true
}

// MapInfo is a map with how full it is.
type MapInfo struct {
	Name       string  `json:"name"`
	Type       string  `json:"type"`
	KeyBytes   uint32  `json:"keyBytes"`
	ValueBytes uint32  `json:"valueBytes"`
	Entries    *uint32 `json:"entries,omitempty"` // in use; nil where that is not counted
	MaxEntries uint32  `json:"maxEntries"`
	Bytes      uint64  `json:"bytes"` // of kernel memory
}

// Maps returns every map, sorted by name. How many entries are in use is known of those
// that the totals are of, and of those in counts.
func (r *Reader) Maps(t Totals, counts map[string]uint32) ([]MapInfo, error) {
	var out []MapInfo
	for _, name := range slices.Sorted(maps.Keys(r.maps.byName)) {
		m := r.maps.byName[name]
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		bytes, _ := info.Memlock()
		one := MapInfo{Name: name, Type: m.Type().String(), KeyBytes: m.KeySize(), ValueBytes: m.ValueSize(), MaxEntries: m.MaxEntries(), Bytes: bytes}
		if name == flowTableMap { // its entries are directions of flows, which have their keys within
			one.KeyBytes, one.ValueBytes, one.MaxEntries = 0, m.ValueSize()/flowWays, m.MaxEntries()*flowWays
		}
		if n, ok := t.entries(name); ok {
			one.Entries = &n
		}
		if n, ok := counts[name]; ok {
			one.Entries = &n
		}
		out = append(out, one)
	}
	return out, nil
}

// entries returns how many entries of a map are in use, false where totals do not say.
func (t Totals) entries(name string) (uint32, bool) {
	switch name {
	case "frontends":
		return uint32(t.Frontends), true
	case "backends":
		return uint32(t.Backends), true
	case "services":
		return uint32(t.Services), true
	case "slots":
		return (uint32(t.Slots) + slotsPerChunk - 1) / slotsPerChunk, true
	default:
		return 0, false
	}
}

// counted are the maps whose entries must be gone through to be counted.
var counted = map[string]func(*ebpf.Map) (uint32, error){
	"addresses":         countEntries[headgateIpAddr, headgateAddress],
	"affinities":        countEntries[headgateAffinityKey, headgateAffinity],
	"devices":           countEntries[uint32, headgateDevice],
	"exempt_namespaces": countEntries[uint64, uint32],
	"fragments":         countEntries[headgateFragmentKey, headgateDatagram],
	"fragment_queue":    countEntries[headgateQueuedKey, headgateQueuedFrame],
	flowTableMap:        countFlows,
	"socket_nat":        countSocketEntries,
	"peer_addresses":    countEntries[headgateIpAddr, uint32],
	"slot_changes":      countEntries[uint32, headgateSlotChange],
	"source_ranges":     countEntries[headgateSourceRange, uint32],
}

// CountEntries counts the entries of the maps that Totals says nothing of, by name. It
// goes through them all, which takes some 0.3 ms for each thousand entries: not for
// every scrape. What comes or goes meanwhile may be counted or not.
func (r *Reader) CountEntries() (map[string]uint32, error) {
	out := map[string]uint32{}
	for name, count := range counted {
		n, err := count(r.maps.byName[name])
		if err != nil {
			return nil, fmt.Errorf("count the entries of %s: %w", name, err)
		}
		out[name] = n
	}
	return out, nil
}

func countEntries[K, V any](m *ebpf.Map) (n uint32, err error) {
	err = walk(m, func(*K, *V) error { n++; return nil })
	return n, err
}

func countFlows(m *ebpf.Map) (n uint32, err error) {
	sets := newGlance[headgateFlowSet](m)
	defer sets.Close()
	for i := range sets.len {
		n += waysInUse(sets.at(i))
	}
	return n, sets.failed
}

func countSocketEntries(m *ebpf.Map) (n uint32, err error) {
	slots := newGlance[headgateSocketSlot](m)
	defer slots.Close()
	for i := range slots.len {
		if slots.at(i).Owner != 0 {
			n++
		}
	}
	return n, slots.failed
}
