package packets

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// The flow table as the C code lays it out: a set is a line of tags and states, and
// seven lines of flows.
const (
	setBytes, flowBytes = 512, 64
	flowWays            = 7
	statesAt, waysAt    = 32, 64
	toAt, knownAt       = 40, 60 // in a flow
	timeShift           = 28     // of nanoseconds, in the upper half of a state
	flagSeen            = 1 << 3
	flagHalfOpen        = 1 << 7
	flagOriginal        = 1 << 11
	flagDatagrams       = 1 << 12
	flagBusy            = 1 << 15
)

// flowTable is the memory of the flow table.
type flowTable struct {
	memory *ebpf.Memory
	sets   uint32
}

// way is where a direction of a flow stands, with what it was when it was read.
type way struct {
	set, way uint32
	key      key
	to       netip.Addr // the end that changes
	state    uint32
	known    uint32
}

func (r *rig) openFlows(tb testing.TB) {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "flow_table"), nil)
	must(tb, err)
	tb.Cleanup(func() { m.Close() })
	memory, err := m.Memory()
	must(tb, err)
	r.table = flowTable{memory, m.MaxEntries()}
}

// room is how many directions of flows there is room for.
func (t flowTable) room() int { return int(t.sets) * flowWays }

// all returns every direction of every flow.
func (t flowTable) all(tb testing.TB) (all []way) {
	tb.Helper()
	memory := make([]byte, int(t.sets)*setBytes)
	_, err := t.memory.ReadAt(memory, 0)
	must(tb, err)
	for i := range t.sets {
		set := memory[i*setBytes:][:setBytes]
		for w := range uint32(flowWays) {
			if binary.NativeEndian.Uint32(set[4*w:]) != 0 {
				all = append(all, readWay(i, w, set))
			}
		}
	}
	return all
}

func readWay(i, w uint32, set []byte) way {
	f := set[waysAt+flowBytes*w:][:flowBytes]
	addr := func(at int) netip.Addr { return netip.AddrFrom16([16]byte(f[at:])).Unmap() }
	return way{
		set: i, way: w,
		key: key{
			map[uint8]hook{1: in, 2: out}[f[37]], at(addr(0), binary.BigEndian.Uint16(f[32:])),
			at(addr(16), binary.BigEndian.Uint16(f[34:])), lb.Protocol(f[36]),
		},
		to:    addr(toAt),
		state: binary.NativeEndian.Uint32(set[statesAt+4*w:]),
		known: binary.NativeEndian.Uint32(f[knownAt:]),
	}
}

// keys returns the keys of all of them.
func (t flowTable) keys(tb testing.TB) map[key]bool {
	tb.Helper()
	out := map[key]bool{}
	for _, w := range t.all(tb) {
		out[w.key] = true
	}
	return out
}

// find returns the direction with a key.
func (t flowTable) find(tb testing.TB, k key) (way, bool) {
	tb.Helper()
	for _, w := range t.all(tb) {
		if w.key == k {
			return w, true
		}
	}
	return way{}, false
}

func (t flowTable) put(tb testing.TB, at int64, word uint32) {
	tb.Helper()
	_, err := t.memory.WriteAt(binary.NativeEndian.AppendUint32(nil, word), at)
	must(tb, err)
}

func (t flowTable) setState(tb testing.TB, w way, state uint32) {
	tb.Helper()
	t.put(tb, int64(w.set)*setBytes+statesAt+4*int64(w.way), state)
}

// setTo changes the last word of the address that a flow's packets get.
func (t flowTable) setTo(tb testing.TB, w way, word [4]byte) {
	tb.Helper()
	t.put(tb, int64(w.set)*setBytes+waysAt+flowBytes*int64(w.way)+toAt+12, binary.NativeEndian.Uint32(word[:]))
}

// tag reads the tag of a way of the first set.
func (t flowTable) tag(tb testing.TB, way int) uint32 {
	tb.Helper()
	word := make([]byte, 4)
	_, err := t.memory.ReadAt(word, 4*int64(way))
	must(tb, err)
	return binary.NativeEndian.Uint32(word)
}

// remove forgets a direction of a flow.
func (t flowTable) remove(tb testing.TB, w way) {
	tb.Helper()
	t.put(tb, int64(w.set)*setBytes+4*int64(w.way), 0)
	t.setState(tb, w, 0)
}

// clear forgets all flows.
func (t flowTable) clear(tb testing.TB) {
	tb.Helper()
	_, err := t.memory.WriteAt(make([]byte, int(t.sets)*setBytes), 0)
	must(tb, err)
}

// age makes a flow look as if its last packet was so many seconds ago, and datagrams as
// if they had begun earlier.
func (t flowTable) age(tb testing.TB, w way, seconds uint64) {
	tb.Helper()
	units := uint32((seconds*1e9 + 1<<timeShift - 1) >> timeShift)
	t.setState(tb, w, w.state-units<<16)
	if w.state&(flagDatagrams|flagOriginal) == flagDatagrams {
		t.put(tb, int64(w.set)*setBytes+waysAt+flowBytes*int64(w.way)+knownAt, w.known-units)
	}
}
