package datapath

import (
	"slices"
	"sync/atomic"
	"time"
)

// Room in the flow table for flows that the agent takes along, in the manner of
// bpf/flow/room.h and bpf/flow/move.h.

// roomLooks is how often a way is looked for that no program takes meanwhile.
const roomLooks = 8

// add adds one direction of a flow that is not there; false if none makes room for it.
func (t *flowTable) add(f *headgateFlow, state uint32, now int64) bool {
	first, second, tag := t.place(f)
	for range roomLooks {
		w, set, there := t.room(first, second, way{seen: state}, now)
		if !there {
			if !t.makeFree(first, second) {
				return false
			}
			continue
		}
		if set != first {
			t.noteOverflow(first)
		}
		if w.own() {
			w.write(f, tag, state)
			return true
		}
	}
	return false
}

// noteOverflow notes that flows of a set are in their second one, before any can be found there.
func (t *flowTable) noteOverflow(set uint32) {
	atomic.OrUint32(&t.sets.at(set).Overflow, uint32(headgateSetFlagSET_OVERFLOW))
}

// makeFree frees a way of full sets as bpf/flow/move.h does: a flow moves to its second set, if
// need be after one of that set has. False if none can.
func (t *flowTable) makeFree(sets ...uint32) bool {
	if slices.ContainsFunc(sets, t.freeWay) {
		return true
	}
	for _, set := range sets {
		for _, f := range t.flowsIn(set) {
			if _, second, _ := t.place(&f); second != set && t.freeWay(second) {
				return true
			}
		}
	}
	return false
}

// freeWay moves a flow from its first set to its second one; false if none can. It is there
// before it is gone here. If it changes meanwhile, its copy is taken back.
func (t *flowTable) freeWay(set uint32) bool {
	for w, f := range t.flowsIn(set) {
		first, second, tag := t.place(&f)
		if first != set || second == set {
			continue
		}
		to, there := t.freeIn(second)
		if !there || !to.own() {
			continue
		}
		t.noteOverflow(first)
		to.write(&f, tag, w.seen)
		if w.own() {
			w.free()
			return true
		}
		to.takeBack()
	}
	return false
}

// freeIn returns a free way of a set.
func (t *flowTable) freeIn(set uint32) (way, bool) {
	for w := range t.ways(set) {
		if atomic.LoadUint32(w.tag) == 0 {
			return w, true
		}
	}
	return way{}, false
}

// takeBack frees a way that was written, also if packets have noted its flow since.
func (w way) takeBack() {
	written := nextGeneration(w.seen)
	for w.seen = atomic.LoadUint32(w.state); isSameFlow(w.seen, written); w.seen = atomic.LoadUint32(w.state) {
		if w.own() {
			w.free()
			return
		}
	}
}

// room returns a way for another one in two sets: a free one, else the half-open one that was
// noted longest ago. Half-open ones make room for those that are not, and for younger ones.
func (t *flowTable) room(first, second uint32, forOne way, now int64) (best way, in uint32, there bool) {
	longest := time.Duration(-1)
	if forOne.isHalfOpen() {
		longest = forOne.idle(now)
	}
	for _, set := range []uint32{first, second} {
		for w := range t.ways(set) {
			if atomic.LoadUint32(w.tag) == 0 {
				return w, set, true
			}
			if w.isHalfOpen() && w.idle(now) > longest {
				best, in, there, longest = w, set, true, w.idle(now)
			}
		}
	}
	return best, in, there
}
