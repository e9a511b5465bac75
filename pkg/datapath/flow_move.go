package datapath

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// Flows move from table to table: where the table has another size, and from the LRU hash
// of an earlier object. All that stand in the old one are added before the programs
// are replaced, and after the last old program has ended those that began meanwhile. What
// both have is merged: programs of either may have noted what the other does not know.

// flowMove takes the flows of one table along to another, again and again.
type flowMove struct {
	from, to *flowTable
	taken    []uint32 // the states of all ways, as they were taken along last; 0 for not yet
	hash     *mapSet  // in place of from, where that is an LRU hash
	replaced bool     // the programs of from: since then those of to know better
}

// openMoves returns how flows come along from all sets of maps that are or were in force, the
// last one last: it is right where two contradict each other.
func (d *Datapath) openMoves() (all []*flowMove, err error) {
	for _, from := range d.flowsOf {
		m, err := d.openMove(from)
		if err != nil {
			closeMoves(all)
			return nil, fmt.Errorf("take along flows: %w", err)
		}
		if m != nil {
			all = append(all, m)
		}
	}
	return all, nil
}

// openMove returns nil for a set of which nothing is to be taken along.
func (d *Datapath) openMove(set *mapSet) (*flowMove, error) {
	old, isTable := flowTableOf(set)
	err := d.doubtEnds(set)
	if err != nil || old == nil || d.maps.byName[flowTableMap] == nil || sameMap(old, d.maps.byName[flowTableMap]) {
		return nil, err
	}
	to, err := openFlowTable(d.maps, true)
	if err != nil {
		return nil, err
	}
	if !isTable {
		return &flowMove{to: to, hash: set}, nil
	}
	sets, err := newMapping[headgateFlowSet](old, false)
	if err != nil {
		to.Close()
		return nil, err
	}
	return newMove(&flowTable{sets: sets}, to), nil
}

func newMove(from, to *flowTable) *flowMove {
	return &flowMove{from: from, to: to, taken: make([]uint32, from.sets.len*flowWays)}
}

// closeMoves ends moves.
func closeMoves(all []*flowMove) {
	for _, m := range all {
		m.to.Close()
		if m.from != nil {
			m.from.Close()
		}
	}
}

// takeFlows takes along which flows programs know that are or were in force, but for those that
// have not changed since they were taken last.
func takeFlows(moves []*flowMove) error {
	for _, m := range moves {
		now, err := coarseClock()
		if err != nil {
			return err
		}
		if m.to.opened = now; m.hash != nil {
			if err := m.to.moveHash(m.hash); err != nil {
				return fmt.Errorf("take along flows: %w", err)
			}
			continue
		}
		m.takeChanged()
	}
	return nil
}

// takeWhile does so again and again while something is done that may have to wait: the kernel
// replaces programs of devices behind all who make or remove devices just then.
func takeWhile(moves []*flowMove, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	for {
		takeErr := takeFlows(moves)
		select {
		case err := <-done:
			return errors.Join(err, takeErr)
		case <-time.After(time.Millisecond):
		}
	}
}

// takeLastFlows takes along all of them once programs have been replaced: what a flow knows
// beside its state may have changed just after it was taken.
func takeLastFlows(moves []*flowMove) error {
	for _, m := range moves {
		m.replaced = true
		clear(m.taken)
	}
	return takeFlows(moves)
}

// freeAbandonedFlows frees what an agent that died was giving to a flow, or a command was taking away.
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

// takeChanged takes along what has changed. The table is gone through once: what begins just
// before programs are replaced is known to one generation only.
func (m *flowMove) takeChanged() {
	var changed [takeClasses][]uint32
	for w := range m.from.changed(m.taken) {
		class := takeClass(w, m.to.opened)
		changed[class] = append(changed[class], w.index)
	}
	for _, class := range changed {
		for _, index := range class {
			m.takeWay(m.from.at(index))
		}
	}
}

// takeClasses is how many classes takeClass tells apart.
const takeClasses = 8

// takeClass says in which order flows are taken along. Those that both sides have confirmed come
// first, those of TCP before datagrams: where there is less room, half-open ones are lost, and
// what is silent for long.
// Original directions come before replies, which are right if these are.
func takeClass(w way, now int64) (class int) {
	switch {
	case w.idle(now) > longestIdle:
		class = 6
	case w.isHalfOpen():
		class = 4
	case w.has(headgateFlowFlagFLOW_DATAGRAMS):
		class = 2
	}
	if !w.has(headgateFlowFlagFLOW_ORIGINAL) {
		class++
	}
	return class
}

func (m *flowMove) takeWay(w way) {
	f, ok := w.read()
	if !ok {
		f, ok = w.readFormer()
	}
	if !ok {
		return
	}
	m.taken[w.index] = w.seen
	if w.idle(m.to.opened) <= longestIdle || w.isOpen() {
		m.to.take(&f, w.seen, m.to.opened, !m.replaced)
	}
}

// take takes one direction of a flow along. Of two that have the same key and lead to
// different ends the one is right whose original direction was noted last: a client has used
// its port again, and packets of the new flow may have met the former one's reply. Where
// both were noted at one time, wins says whether this one is. What is wrong goes in both
// directions, whichever of the two flows it is: it would take packets and never answer.
func (t *flowTable) take(f *headgateFlow, state uint32, now int64, wins bool) {
	w, there := t.find(f)
	switch {
	case !there && !t.contradicts(f, state, wins):
		t.add(f, state, now)
	case !there:
	case w.flow.becomes() == f.becomes():
		w.merge(f, state)
	case isLater(t.begun(f, state), t.begun(w.flow, w.seen), wins):
		t.replace(w, f, state)
	default:
		t.freeOther(f)
	}
}

// freeOther frees the way of the other direction of a flow.
func (t *flowTable) freeOther(f *headgateFlow) {
	other, there := t.find(f.other())
	if there && other.leadsTo(f) && other.seize() {
		other.free()
	}
}

// contradicts says whether the table has the other direction of a flow with other ends, which
// is right: then this one is of a flow that is over.
func (t *flowTable) contradicts(f *headgateFlow, state uint32, wins bool) bool {
	other, there := t.find(f.other())
	return there && !other.leadsTo(f) && !isLater(state, t.begun(other.flow, other.seen), wins)
}

// leadsTo says whether a way is the other direction of a flow.
func (w way) leadsTo(f *headgateFlow) bool { return w.flow.other().sameKey(f) }

// begun returns the state of the original direction of a flow, given either; where there is
// none, that which is given.
func (t *flowTable) begun(f *headgateFlow, state uint32) uint32 {
	if state&uint32(headgateFlowFlagFLOW_ORIGINAL) != 0 {
		return state
	}
	if original, there := t.find(f.other()); there && original.leadsTo(f) {
		return original.seen
	}
	return state
}

// replace gives the way of a flow, and frees that of its other direction.
func (t *flowTable) replace(w way, f *headgateFlow, state uint32) {
	t.freeOther(w.flow)
	if w.seize() {
		w.write(f, *w.tag, state)
	}
}

// isLater says whether a state was noted after another; wins if at one time.
func isLater(state, other uint32, wins bool) bool {
	age := flowAge(other, state)
	return age > 0 || age == 0 && wins
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
			t.take(f, state, t.opened, false)
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
