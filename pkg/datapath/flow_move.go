package datapath

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Flows move from table to table: where the table has another size, and from the LRU hash
// of an earlier object. All that stand in the old one are added before the programs
// are replaced, and those that began meanwhile after the last old program has ended.

// moveFlows adds the flows of another set of maps to the table of this one. Flows that
// both sides have confirmed come first: where the table is smaller, half-open ones are lost.
func (d *Datapath) moveFlows(from *mapSet) error {
	old, isTable := flowTableOf(from)
	if old == nil || d.maps.byName[flowTableMap] == nil || sameMap(old, d.maps.byName[flowTableMap]) {
		return nil
	}
	to, err := openFlowTable(d.maps, true)
	if err != nil {
		return err
	}
	defer to.Close()
	if !isTable {
		return to.moveHash(from)
	}
	sets, err := newMapping[headgateFlowSet](old, false)
	if err != nil {
		return err
	}
	defer sets.Close()
	t := &flowTable{sets: sets}
	for _, halfOpen := range []bool{false, true} {
		for w, f := range t.flows() {
			if w.has(headgateFlowFlagFLOW_HALF_OPEN) == halfOpen {
				to.add(&f, w.seen)
			}
		}
	}
	return nil
}

// hashedFlow is one direction of a flow in the LRU hash of earlier objects. Its flags
// have the values of today's.
type hashedFlow struct {
	To         headgateTuple
	LastSeenNs uint64
	_          [2]uint32 // frontend, Service
	BackendID  uint32
	_          uint32 // slot
	Flags      headgateFlowFlag
	NextSeq    uint32
	_          [2]uint32 // its place among half-open flows
}

// moveHash adds the flows of an LRU hash. There only the original direction is half-open:
// so is the other one here.
func (t *flowTable) moveHash(from *mapSet) error {
	m := from.byName[flowTableMap]
	if m.KeySize() != uint32(unsafe.Sizeof(headgateTuple{})) || m.ValueSize() != uint32(unsafe.Sizeof(hashedFlow{})) {
		return nil // nothing that this process could read
	}
	now, err := coarseClock()
	if err != nil {
		return err
	}
	err = walk(m, func(key *headgateTuple, value *hashedFlow) error {
		const limit = time.Duration(headgateFlowTimeIDLE_ESTABLISHED_S) * time.Second
		if time.Duration(now-int64(value.LastSeenNs)) < limit {
			t.add(value.flow(key))
		}
		return nil
	})
	for w, f := range t.flows() {
		reply, there := way{}, false
		if w.has(headgateFlowFlagFLOW_ORIGINAL) && w.has(headgateFlowFlagFLOW_HALF_OPEN) {
			reply, there = t.find(f.other())
		}
		if there {
			atomic.CompareAndSwapUint32(reply.state, reply.seen, reply.seen|uint32(headgateFlowFlagFLOW_HALF_OPEN))
		}
	}
	return err
}

// flow returns the flow as the table has it, and its state.
func (h *hashedFlow) flow(key *headgateTuple) (f *headgateFlow, state uint32) {
	f = &headgateFlow{
		Src: key.Src, Dst: key.Dst, SrcPort: key.SrcPort, DstPort: key.DstPort, Protocol: key.Protocol, Hook: key.Hook,
		To: h.To.Src, ToSrcPort: h.To.SrcPort, ToDstPort: h.To.DstPort,
	}
	in := headgateHook(key.Hook) == headgateHookHOOK_IN
	if in {
		f.To = h.To.Dst
	}
	flags := h.Flags
	switch {
	case h.isOriginal(in):
		flags |= headgateFlowFlagFLOW_ORIGINAL
		f.Known = h.BackendID
	case f.isTCP():
		f.Known = h.NextSeq
	}
	if !f.isTCP() {
		flags |= headgateFlowFlagFLOW_DATAGRAMS
	}
	if flags&headgateFlowFlagFLOW_SEEN == 0 {
		flags |= headgateFlowFlagFLOW_HALF_OPEN
	}
	return f, uint32(h.LastSeenNs>>headgateFlowTimeFLOW_TIME_NS_SHIFT)<<headgateFlowTimeFLOW_TIME_SHIFT | uint32(flags)
}

// isOriginal says whether a direction is that of the first packet: towards a backend, or
// past the Services where it comes in, or to another node where it leaves.
func (h *hashedFlow) isOriginal(in bool) bool {
	switch {
	case h.Flags&(headgateFlowFlagFLOW_TO_BACKEND|headgateFlowFlagFLOW_REFUSED) != 0:
		return true
	case h.Flags&headgateFlowFlagFLOW_REPLY != 0:
		return false
	case h.Flags&headgateFlowFlagFLOW_BYPASS != 0:
		return in
	}
	return !in
}
