package datapath

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Flows move from table to table: where the table has another size, and from the LRU hash
// of an earlier object. All that stand in the old one are added before the programs
// are replaced, and after the last old program has ended those that began meanwhile. What
// both have is merged: programs of either may have noted what the other does not know.

// moveFlows takes the flows of another set of maps along to the table of this one, those
// that had a packet since a time, or all of them if that is 0.
func (d *Datapath) moveFlows(from *mapSet, since int64) error {
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
	to.moveTable(&flowTable{sets: sets}, time.Duration(to.opened-since), to.opened)
	return nil
}

// freeAbandonedFlows frees what an agent that died was giving to a flow.
func (d *Datapath) freeAbandonedFlows() error {
	if d.maps.byName[flowTableMap] == nil {
		return nil // an older object has none
	}
	t, err := openFlowTable(d.maps, true)
	if err != nil {
		return err
	}
	defer t.Close()
	return t.freeAbandoned(waitGrace)
}

// lateness is how long after a flow was noted its other direction may change with it.
const lateness = 5 * time.Second

// moveTable takes along what had a packet within a time. Flows that both sides have
// confirmed come first, those of TCP before datagrams: where there is less room, half-open
// ones are lost.
func (t *flowTable) moveTable(from *flowTable, within time.Duration, now int64) {
	for _, isNext := range []func(way) bool{
		func(w way) bool { return !w.isHalfOpen() && !w.has(headgateFlowFlagFLOW_DATAGRAMS) },
		func(w way) bool { return !w.isHalfOpen() && w.has(headgateFlowFlagFLOW_DATAGRAMS) },
		way.isHalfOpen,
	} {
		for w, f := range from.flows() {
			if isNext(w) && w.idle(now) <= min(within+lateness, longestIdle) {
				t.take(&f, w.seen, now)
			}
		}
	}
}

// take takes one direction of a flow along. Of two that have the same key and lead to
// different ends the one that was noted last is right.
func (t *flowTable) take(f *headgateFlow, state uint32, now int64) {
	w, there := t.find(f)
	switch {
	case !there && !t.contradicts(f, state):
		t.add(f, state, now)
	case !there:
	case w.flow.becomes() == f.becomes():
		w.merge(f, state)
	case flowAge(w.seen, state) > 0 && w.own():
		w.write(f, *w.tag, state)
	}
}

// contradicts says whether the table has the other direction of a flow with other ends, not
// older than this one: then this one is of a flow that is over.
func (t *flowTable) contradicts(f *headgateFlow, state uint32) bool {
	other, there := t.find(f.other())
	return there && !other.flow.other().sameKey(f) && flowAge(other.seen, state) <= 0
}

// merge notes what the same flow has come to elsewhere.
func (w way) merge(f *headgateFlow, state uint32) {
	for next := merged(w.seen, state); next != w.seen && !atomic.CompareAndSwapUint32(w.state, w.seen, next); next = merged(w.seen, state) {
		now := atomic.LoadUint32(w.state)
		if !isSameFlow(now, w.seen) {
			return
		}
		w.seen = now
	}
	atomic.CompareAndSwapUint32(&w.flow.Known, 0, f.Known) // a reply says it with its first packet
}

// merged returns a state with what another one of the same flow says: a packet that came
// has come, a flow that was confirmed is, and the end of a connection is believed of
// the state that was noted last.
func merged(to, from uint32) uint32 {
	const (
		halfOpen = uint32(headgateFlowFlagFLOW_HALF_OPEN)
		closed   = halfOpen | uint32(headgateFlowFlagFLOW_CLOSING)
		ends     = uint32(headgateFlowFlagFLOW_CLOSING | headgateFlowFlagFLOW_BROKEN)
		inFlight = uint32(headgateFlowFlagFLOW_COUNTED)
		times    = uint32(0xffff << headgateFlowTimeFLOW_TIME_SHIFT)
	)
	next := to | from&uint32(headgateFlowFlagFLOW_SEEN)
	if to&from&halfOpen == 0 && to&closed != closed {
		next &^= halfOpen
	}
	if flowAge(to, from) < 0 {
		return next
	}
	if from&closed == closed {
		next |= halfOpen
	}
	if next |= from & inFlight; (to|from)&ends != 0 {
		next &= to&from | ^inFlight
	}
	return next&^times | from&(times|ends)
}

// flowAge returns by how many units of their clock one state was noted before another.
func flowAge(one, other uint32) int16 {
	return int16((other >> headgateFlowTimeFLOW_TIME_SHIFT) - (one >> headgateFlowTimeFLOW_TIME_SHIFT))
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
	err := walk(m, func(key *headgateTuple, value *hashedFlow) error {
		if time.Duration(t.opened-int64(value.LastSeenNs)) < longestIdle {
			f, state := value.flow(key)
			t.take(f, state, t.opened)
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
	if headgateHook(key.Hook) == headgateHookHOOK_IN {
		f.To = h.To.Dst
	}
	flags := h.Flags
	switch {
	case h.isOriginal(key):
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
// past the Services where it comes in, or to another node where it leaves. What nobody
// takes went to port 0 of the node.
func (h *hashedFlow) isOriginal(key *headgateTuple) bool {
	in := headgateHook(key.Hook) == headgateHookHOOK_IN
	switch {
	case h.Flags&(headgateFlowFlagFLOW_TO_BACKEND|headgateFlowFlagFLOW_REFUSED) != 0:
		return true
	case h.Flags&headgateFlowFlagFLOW_REPLY != 0 || key.SrcPort == 0:
		return false
	case h.Flags&headgateFlowFlagFLOW_BYPASS != 0:
		return in
	}
	return !in
}
