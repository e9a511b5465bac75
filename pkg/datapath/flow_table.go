package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"iter"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// The maps that flows stand in, see bpf/flow/table.h.
const (
	flowTableMap   = "flow_table"
	flowFactorsMap = "flow_factors"
)

// flowWays is how many directions of flows a set has room for.
const flowWays = uint32(len(headgateFlowSet{}.Way))

// flowGenerations are the bits of a state that count which flows have had the way.
const flowGenerations = 3 * headgateFlowFlagFLOW_GENERATION

// flowSets returns how many sets have room for so many directions of flows.
func flowSets(flows uint32) uint32 { return max(1, (flows+flowWays-1)/flowWays) }

// flowTable is the flow table as memory, which programs use at the same time.
type flowTable struct {
	sets    *mapping[headgateFlowSet]
	factors headgateFlowFactors
	opened  int64 // when it was opened, by the coarse clock: the present of who goes through it
}

// openFlowTable maps the flow table of a set of maps.
func openFlowTable(s *mapSet, writable bool) (*flowTable, error) {
	factors, err := newMapping[headgateFlowFactors](s.byName[flowFactorsMap], false)
	if err != nil {
		return nil, err
	}
	defer factors.Close()
	now, err := coarseClock()
	if err != nil {
		return nil, err
	}
	sets, err := newMapping[headgateFlowSet](s.byName[flowTableMap], writable)
	if err != nil {
		return nil, err
	}
	return &flowTable{sets: sets, factors: *factors.at(0), opened: now}, nil
}

// Close ends the mapping.
func (t *flowTable) Close() { t.sets.Close() }

// drawFactors gives new maps their factors; those of a table that others use stay.
func (s *mapSet) drawFactors() error {
	m := s.byName[flowFactorsMap]
	if m == nil {
		return nil // an older object has none
	}
	factors, err := newMapping[headgateFlowFactors](m, true)
	if err != nil {
		return err
	}
	defer factors.Close()
	if *factors.at(0) != (headgateFlowFactors{}) {
		return nil
	}
	var random [unsafe.Sizeof(headgateFlowFactors{})]byte
	_, _ = rand.Read(random[:]) // never fails
	for i := range factors.at(0).Factor {
		factors.at(0).Factor[i] = binary.NativeEndian.Uint64(random[8*i:]) | 1
	}
	return nil
}

// flowTime is a time as flows have it.
func flowTime(ns uint64) uint64 { return ns >> headgateFlowTimeFLOW_TIME_NS_SHIFT }

// way is where one direction of a flow stands.
type way struct {
	flow       *headgateFlow
	state, tag *uint32
	seen       uint32 // the state as it was read
	index      uint32 // among all ways of the table
}

func (w way) has(flag headgateFlowFlag) bool { return w.seen&uint32(flag) != 0 }

// isKept says whether packets of the flow are carried to a backend outside: it has one direction.
func (w way) isKept() bool {
	return headgateFlowFlag(w.seen)&headgateFlowFlagFLOW_KEPT == headgateFlowFlagFLOW_KEPT
}

func (w way) isHalfOpen() bool { return w.has(headgateFlowFlagFLOW_HALF_OPEN) }

// isSameFlow says whether two states of a way are of one flow.
func isSameFlow(a, b uint32) bool {
	return (a^b)&uint32(flowGenerations|headgateFlowFlagFLOW_BUSY) == 0
}

// idle returns for how long no packet was noted, by the coarse clock.
func (w way) idle(now int64) time.Duration {
	const ahead = 32 // as of elapsed_bits
	passed := uint16(now>>headgateFlowTimeFLOW_TIME_NS_SHIFT) - uint16(w.seen>>headgateFlowTimeFLOW_TIME_SHIFT)
	if passed > 0xffff-ahead {
		return 0
	}
	return time.Duration(passed) << headgateFlowTimeFLOW_TIME_NS_SHIFT
}

// own makes the way busy, false if its state is another by now. Whoever owns it stores
// the next state.
func (w way) own() bool {
	return atomic.CompareAndSwapUint32(w.state, w.seen, uint32(headgateFlowFlagFLOW_BUSY)|nextGeneration(w.seen))
}

// seize makes the way busy whatever is noted of its flow meanwhile, false if it is another
// one's by now.
func (w *way) seize() bool {
	for !w.own() {
		now := atomic.LoadUint32(w.state)
		if !isSameFlow(now, w.seen) {
			return false
		}
		w.seen = now
	}
	return true
}

func nextGeneration(state uint32) uint32 {
	return (state + uint32(headgateFlowFlagFLOW_GENERATION)) & uint32(flowGenerations)
}

// write gives a way that is owned to a flow in a state.
func (w way) write(f *headgateFlow, tag, state uint32) {
	*w.flow = *f
	w.flow.Checksum = f.checksum(tag)
	atomic.StoreUint32(w.tag, tag)
	atomic.StoreUint32(w.state, state&^uint32(flowGenerations)|nextGeneration(w.seen))
}

// free gives up a way that is owned. One that was owned for longer than a grace period an agent
// that started has freed, and it may be another flow's by now.
func (w way) free() {
	busy := uint32(headgateFlowFlagFLOW_BUSY) | nextGeneration(w.seen)
	if atomic.LoadUint32(w.state) != busy {
		return
	}
	atomic.StoreUint32(w.tag, 0)
	atomic.CompareAndSwapUint32(w.state, busy, nextGeneration(w.seen))
}

// allWays returns all ways of a set, used or not.
func (t *flowTable) allWays(set uint32) iter.Seq[way] {
	return func(yield func(way) bool) {
		for i := range flowWays {
			if !yield(t.at(set*flowWays + i)) {
				return
			}
		}
	}
}

// ways returns them but for those that are busy.
func (t *flowTable) ways(set uint32) iter.Seq[way] {
	return func(yield func(way) bool) {
		for w := range t.allWays(set) {
			if !w.has(headgateFlowFlagFLOW_BUSY) && !yield(w) {
				return
			}
		}
	}
}

// freeAbandoned frees the ways that an agent or a command had made busy when it died: no program comes
// to its end where they are. Programs have one busy for some nanoseconds, and none does
// after a grace period.
func (t *flowTable) freeAbandoned(grace func() error) error {
	var busy []way
	for set := range t.sets.len {
		for w := range t.allWays(set) {
			if w.has(headgateFlowFlagFLOW_BUSY) {
				busy = append(busy, w)
			}
		}
	}
	if len(busy) == 0 {
		return nil
	}
	if err := grace(); err != nil {
		return err
	}
	for _, w := range busy {
		if w.own() {
			w.free()
		}
	}
	return nil
}

// flows returns every direction of every flow, with a copy of what it was at one time.
// Those that come or go meanwhile may be missed.
func (t *flowTable) flows() iter.Seq2[way, headgateFlow] {
	return func(yield func(way, headgateFlow) bool) {
		for set := range t.sets.len {
			for w, f := range t.flowsIn(set) {
				if !yield(w, f) {
					return
				}
			}
		}
	}
}

// changed returns the ways in use whose state is not the one before, by index. It reads no
// more than that of most ways, since flows begin meanwhile.
func (t *flowTable) changed(before []uint32) iter.Seq[way] {
	return func(yield func(way) bool) {
		for set := range t.sets.len {
			s := t.sets.at(set)
			for i := range flowWays {
				index := set*flowWays + i
				if atomic.LoadUint32(&s.State[i]) != before[index] && atomic.LoadUint32(&s.Tag[i]) != 0 && !yield(t.at(index)) {
					return
				}
			}
		}
	}
}

// at returns the way with an index, as it is now.
func (t *flowTable) at(index uint32) way {
	s, i := t.sets.at(index/flowWays), index%flowWays
	w := way{flow: &s.Way[i], state: &s.State[i], tag: &s.Tag[i], index: index}
	w.seen = atomic.LoadUint32(w.state)
	return w
}

// read returns a copy of the flow of a way in the state that was seen; false if there is
// none, or another one by now.
func (w way) read() (f headgateFlow, ok bool) {
	return w.readBy(atomic.LoadUint32(w.tag))
}

// readFormer is read for a table of an earlier object, whose checksums do not cover the key.
func (w way) readFormer() (f headgateFlow, ok bool) {
	return w.readBy(0)
}

// readBy is read with the tag that the checksum covers.
func (w way) readBy(tag uint32) (f headgateFlow, ok bool) {
	if w.has(headgateFlowFlagFLOW_BUSY) || atomic.LoadUint32(w.tag) == 0 {
		return f, false
	}
	f = *w.flow
	return f, f.Checksum == f.checksum(tag) && isSameFlow(atomic.LoadUint32(w.state), w.seen)
}

// flowsIn returns every direction of a flow that is in a set.
func (t *flowTable) flowsIn(set uint32) iter.Seq2[way, headgateFlow] {
	return func(yield func(way, headgateFlow) bool) {
		for w := range t.ways(set) {
			if f, ok := w.read(); ok && !yield(w, f) {
				return
			}
		}
	}
}

// isEmpty says whether a set has no flow.
func (t *flowTable) isEmpty(set uint32) bool {
	return t.sets.at(set).Tag == [flowWays]uint32{}
}

// count returns how many directions of flows there are.
func (t *flowTable) count() (n uint32) {
	for set := range t.sets.len {
		n += waysInUse(t.sets.at(set))
	}
	return n
}

// waysInUse returns how many directions of flows are in a set.
func waysInUse(s *headgateFlowSet) (n uint32) {
	for i := range s.Tag {
		if atomic.LoadUint32(&s.Tag[i]) != 0 {
			n++
		}
	}
	return n
}

// hash is flow_hash of the C code.
func (t *flowTable) hash(f *headgateFlow) uint64 {
	factor := &t.factors.Factor
	var sum uint64
	for i := range f.Src.Word {
		sum += factor[i]*uint64(f.Src.Word[i]) + factor[4+i]*uint64(f.Dst.Word[i])
	}
	sum += factor[8] * uint64(uint32(f.SrcPort)<<16|uint32(f.DstPort))
	sum += factor[9] * uint64(uint32(f.Protocol)<<8|uint32(f.Hook))
	sum = (sum ^ sum>>32) * factor[10]
	return sum ^ sum>>29
}

// place returns the two sets that a flow may be in, and its tag.
func (t *flowTable) place(f *headgateFlow) (first, second, tag uint32) {
	hash := t.hash(f)
	set := func(hash uint64) uint32 { return uint32(hash >> 32 * uint64(t.sets.len) >> 32) }
	return set(hash), set(hash * t.factors.Factor[11]), uint32(hash) | 1
}

// checksum is flow_checksum of the C code.
func (f *headgateFlow) checksum(tag uint32) uint16 {
	sum := tag ^ (uint32(f.ToSrcPort)<<16 | uint32(f.ToDstPort))
	for _, word := range f.To.Word {
		sum ^= word
	}
	return uint16(sum * uint32(headgateFilterHashFILTER_FACTOR_3) >> 16)
}

// sameKey says whether two flows have the same key.
func (f *headgateFlow) sameKey(g *headgateFlow) bool {
	return f.Src == g.Src && f.Dst == g.Dst && f.SrcPort == g.SrcPort && f.DstPort == g.DstPort && f.Protocol == g.Protocol && f.Hook == g.Hook
}

// find returns where the flow with the key of f stands.
func (t *flowTable) find(f *headgateFlow) (way, bool) {
	first, second, tag := t.place(f)
	for _, set := range []uint32{first, second} {
		for w := range t.ways(set) {
			if atomic.LoadUint32(w.tag) == tag && w.flow.sameKey(f) {
				return w, true
			}
		}
	}
	return way{}, false
}

// becomes returns what packets of a flow become.
func (f *headgateFlow) becomes() (t headgateTuple) {
	t = headgateTuple{Src: f.Src, Dst: f.Dst, SrcPort: f.ToSrcPort, DstPort: f.ToDstPort, Protocol: f.Protocol, Hook: f.Hook}
	if headgateHook(f.Hook) == headgateHookHOOK_IN {
		t.Dst = f.To
	} else {
		t.Src = f.To
	}
	return t
}

// other returns the key of the other direction of a flow.
func (f *headgateFlow) other() *headgateFlow {
	to := f.becomes()
	hook := headgateHookHOOK_IN
	if headgateHook(f.Hook) == headgateHookHOOK_IN {
		hook = headgateHookHOOK_OUT
	}
	return &headgateFlow{Src: to.Dst, Dst: to.Src, SrcPort: to.DstPort, DstPort: to.SrcPort, Protocol: f.Protocol, Hook: uint8(hook)}
}

// isTCP says whether a flow is of TCP.
func (f *headgateFlow) isTCP() bool { return lb.Protocol(f.Protocol) == lb.TCP }

// flowTableOf returns the map of a set that holds flows, and whether it is a table: that
// of an earlier object is an LRU hash.
func flowTableOf(s *mapSet) (m *ebpf.Map, table bool) {
	if s == nil || s.byName[flowTableMap] == nil {
		return nil, false
	}
	m = s.byName[flowTableMap]
	return m, m.Type() == ebpf.Array && m.ValueSize() == uint32(unsafe.Sizeof(headgateFlowSet{}))
}
