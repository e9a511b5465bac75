package datapath

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/pkg/lb"
)

const (
	flagHalfOpen  = uint32(headgateFlowFlagFLOW_HALF_OPEN)
	flagSeen      = uint32(headgateFlowFlagFLOW_SEEN)
	flagClosing   = uint32(headgateFlowFlagFLOW_CLOSING)
	flagBroken    = uint32(headgateFlowFlagFLOW_BROKEN)
	flagCounted   = uint32(headgateFlowFlagFLOW_COUNTED)
	flagOriginal  = uint32(headgateFlowFlagFLOW_ORIGINAL)
	flagDatagrams = uint32(headgateFlowFlagFLOW_DATAGRAMS)
	unit          = time.Duration(1) << headgateFlowTimeFLOW_TIME_NS_SHIFT
)

// someTable returns a flow table with room for so many directions, in memory of its own.
func someTable(flows uint32) *flowTable {
	const size = unsafe.Sizeof(headgateFlowSet{})
	t := &flowTable{sets: &mapping[headgateFlowSet]{mem: make([]byte, uintptr(flowSets(flows))*size), stride: size, len: flowSets(flows)}}
	for i := range t.factors.Factor {
		t.factors.Factor[i] = rand.Uint64() | 1
	}
	return t
}

// someFlow is the original direction of the i-th flow, to the backend 10.0.0.TO.
func someFlow(i, to uint32) *headgateFlow {
	addr := func(last uint32) headgateIpAddr {
		return headgateIpAddr{Word: [4]uint32{2: 0xffff0000, 3: binary.NativeEndian.Uint32([]byte{10, 0, 0, byte(last)})}}
	}
	return &headgateFlow{
		Src: addr(i >> 16), Dst: addr(99), SrcPort: uint16(i), DstPort: 80, Protocol: uint8(lb.TCP), Hook: uint8(headgateHookHOOK_IN),
		To: addr(to), ToSrcPort: uint16(i), ToDstPort: 8080, Known: to,
	}
}

// reply is the other direction of a flow.
func reply(f *headgateFlow) *headgateFlow {
	r := f.other()
	r.To, r.ToSrcPort, r.ToDstPort = f.Dst, f.DstPort, f.SrcPort
	return r
}

// stateOf is a state that was noted so long ago.
func stateOf(now int64, idle time.Duration, flags uint32) uint32 {
	return uint32((now-int64(idle))>>headgateFlowTimeFLOW_TIME_NS_SHIFT)<<headgateFlowTimeFLOW_TIME_SHIFT | flags
}

// takeAllOf takes along all flows of another table.
func (t *flowTable) takeAllOf(from *flowTable, now int64) {
	t.opened = now
	newMove(from, t).takeChanged()
}

func mustClock(tb testing.TB) int64 {
	tb.Helper()
	now, err := coarseClock()
	if err != nil {
		tb.Fatal(err)
	}
	return now
}

// wantFlow checks where a flow leads, and in which state, apart from who has had its way.
func (t *flowTable) wantFlow(tb testing.TB, what string, f *headgateFlow, state uint32) {
	tb.Helper()
	w, there := t.find(f)
	if !there {
		tb.Errorf("%s: there is no flow %v", what, f)
		return
	}
	if got := w.seen &^ uint32(flowGenerations); w.flow.becomes() != f.becomes() || got != state {
		tb.Errorf("%s: state %#x, to %v, want %#x to %v", what, got, w.flow.To, state, f.To)
	}
}

// TestWhatBothTablesKnowIsMerged has a flow in two tables, in which it came to different states.
func TestWhatBothTablesKnowIsMerged(t *testing.T) {
	now := mustClock(t)
	at := func(idle time.Duration, flags uint32) uint32 { return stateOf(now, idle, flags|flagOriginal) }
	const before, later = 9 * time.Second, 3 * time.Second
	for what, c := range map[string]struct{ to, from, want uint32 }{
		"confirmed meanwhile":               {at(before, flagHalfOpen), at(later, flagSeen), at(later, flagSeen)},
		"confirmed in the new table":        {at(later, flagSeen), at(before, flagHalfOpen), at(later, flagSeen)},
		"confirmed, then noted by both":     {at(later, flagHalfOpen), at(before, flagSeen), at(later, flagSeen)},
		"one side closed meanwhile":         {at(before, flagSeen|flagCounted), at(later, flagSeen|flagClosing), at(later, flagSeen|flagClosing)},
		"in flight meanwhile":               {at(before, flagHalfOpen), at(later, flagSeen|flagCounted), at(later, flagSeen|flagCounted)},
		"in flight in the new table":        {at(before, flagSeen|flagCounted), at(before, flagHalfOpen|flagSeen), at(before, flagSeen|flagCounted)},
		"both sides closed meanwhile":       {at(before, flagSeen), at(later, flagSeen|flagClosing|flagHalfOpen), at(later, flagSeen|flagClosing|flagHalfOpen)},
		"both sides closed in the new one":  {at(later, flagSeen|flagClosing|flagHalfOpen), at(before, flagSeen), at(later, flagSeen|flagClosing|flagHalfOpen)},
		"broken meanwhile":                  {at(before, flagSeen), at(before, flagSeen|flagBroken), at(before, flagSeen|flagBroken)},
		"opened again in the new one":       {at(later, flagSeen|flagCounted), at(before, flagSeen|flagClosing|flagHalfOpen), at(later, flagSeen|flagCounted)},
		"half-open in both, seen meanwhile": {at(before, flagHalfOpen), at(before, flagHalfOpen|flagSeen), at(before, flagHalfOpen|flagSeen)},
	} {
		from, to, f := someTable(7000), someTable(7), someFlow(1, 1)
		from.add(f, c.from, now)
		to.add(f, c.to, now)
		to.takeAllOf(from, now)
		to.wantFlow(t, what, f, c.want)
	}
}

// A reply direction that was taken along before its first packet does not know where that begins.
func TestTheSequenceNumberOfAReplyComesAlong(t *testing.T) {
	now := mustClock(t)
	for _, c := range []struct{ to, from, want uint32 }{{0, 5, 5}, {7, 5, 7}} {
		from, to, f := someTable(7000), someTable(7), reply(someFlow(1, 1))
		f.Known = c.from
		from.add(f, stateOf(now, 0, flagHalfOpen|flagSeen), now)
		f.Known = c.to
		to.add(f, stateOf(now, 0, flagHalfOpen), now)
		to.takeAllOf(from, now)
		if w, _ := to.find(f); w.flow.Known != c.want {
			t.Errorf("%d in the new table, %d in the old one: became %d", c.to, c.from, w.flow.Known)
		}
	}
}

// The checksums of an earlier object do not cover the key. Half of a flow comes along from neither.
func TestFlowsWithChecksumsOfAnEarlierObjectComeAlong(t *testing.T) {
	now := mustClock(t)
	state := stateOf(now, time.Second, flagSeen|flagOriginal)
	from, to := someTable(7000), someTable(7000)
	for i := range uint32(3) {
		f := someFlow(i, 1)
		from.add(f, state, now)
		w, _ := from.find(f)
		switch i {
		case 1:
			w.flow.Checksum = f.checksum(0)
		case 2:
			w.flow.Checksum ^= 1
		}
	}
	to.takeAllOf(from, now)
	to.wantFlow(t, "of this object", someFlow(0, 1), state)
	to.wantFlow(t, "of an earlier object", someFlow(1, 1), state)
	if _, there := to.find(someFlow(2, 1)); there {
		t.Error("half of a flow has come along")
	}
}

// Two generations begin flows of one client by one port, to two frontends and one backend: the
// replies are the same, so that one of the flows cannot stay. The original direction of one was taken along
// just before the other one began.
func TestAFlowThatLosesItsReplyGoesAltogether(t *testing.T) {
	now := mustClock(t)
	for what, wins := range map[string]bool{"the one taken along began earlier": false, "and later": true} {
		from, to, x := someTable(7000), someTable(7), someFlow(1, 1)
		y := *x
		y.DstPort++
		idle := map[bool]time.Duration{true: 3 * time.Second, false: 9 * time.Second}[wins]
		for table, f := range map[*flowTable]*headgateFlow{from: x, to: &y} {
			since := 6 * time.Second
			if table == from {
				since = idle
			}
			table.add(f, stateOf(now, since, flagSeen|flagOriginal), now)
			table.add(reply(f), stateOf(now, since, flagSeen), now)
		}
		to.add(x, stateOf(now, idle, flagSeen|flagOriginal), now)
		to.takeAllOf(from, now)
		winner, loser := &y, x
		if wins {
			winner, loser = x, &y
		}
		if _, there := to.find(loser); there {
			t.Errorf("%s: the one that has lost its reply is there", what)
		}
		if _, there := to.find(winner); !there {
			t.Errorf("%s: the other one is gone", what)
		}
		if w, there := to.find(reply(winner)); !there || !w.leadsTo(winner) {
			t.Errorf("%s: so is its reply", what)
		}
	}
}

// A client uses its port again, and the table of an agent that died in between has the flow before.
func TestAFlowThatIsOverDoesNotComeBack(t *testing.T) {
	now := mustClock(t)
	before, after := someFlow(1, 1), someFlow(1, 2)
	old := stateOf(now, time.Minute, flagSeen|flagOriginal)
	young := stateOf(now, time.Second, flagSeen|flagOriginal)
	for what, order := range map[string][2]*headgateFlow{"the one before comes last": {after, before}, "the one before comes first": {before, after}} {
		to := someTable(70)
		for _, f := range order {
			from, state := someTable(70), old
			if f == after {
				state = young
			}
			from.add(f, state, now)
			from.add(reply(f), state&^flagOriginal, now)
			to.takeAllOf(from, now)
		}
		to.wantFlow(t, what, after, young)
		to.wantFlow(t, what+", its reply", reply(after), young&^flagOriginal)
		if _, there := to.find(reply(before)); there && order[0] == after {
			t.Errorf("%s: its reply direction came back", what)
		}
	}
}

// Where there is less room, confirmed flows are kept and half-open ones are not: also where these
// were there first.
func TestConfirmedFlowsComeFirstIntoLessRoom(t *testing.T) {
	const room, confirmed = 70, 50
	now, random := mustClock(t), rand.New(rand.NewPCG(1, 1))
	from, to := someTable(7000), someTable(room)
	for i := range uint32(room) {
		to.add(someFlow(100_000+i, 1), stateOf(now, time.Second, flagHalfOpen|flagOriginal), now)
	}
	kept := map[uint32]bool{}
	for i := range uint32(1000) {
		flags := flagHalfOpen | flagOriginal
		if random.IntN(20) == 0 && len(kept) < confirmed {
			flags, kept[i] = flagSeen|flagOriginal, true
		}
		from.add(someFlow(i, 1), stateOf(now, time.Second, flags), now)
	}
	to.takeAllOf(from, now)
	found := 0
	for w := range to.flows() {
		if !w.isHalfOpen() {
			found++
		}
	}
	if found < len(kept)*9/10 { // a set may be full of them
		t.Errorf("of %d confirmed flows %d came along", len(kept), found)
	}
	if n := to.count(); n != room {
		t.Errorf("%d directions, want %d", n, room)
	}
}

// TestATableIsFilledByMoves has confirmed flows come into a new table until nine of ten ways
// are taken: none is lost.
func TestATableIsFilledByMoves(t *testing.T) {
	const sets, flows = 600, 600 * 7 * 9 / 10
	now, to := mustClock(t), someTable(sets*flowWays)
	state := stateOf(now, time.Second, flagSeen|flagOriginal)
	for i := range uint32(flows) {
		if !to.add(someFlow(i, 1), state, now) {
			t.Fatalf("no room for flow %d of %d", i, flows)
		}
	}
	for i := range uint32(flows) {
		to.wantFlow(t, "filled", someFlow(i, 1), state)
	}
	if n := to.count(); n != flows {
		t.Errorf("%d directions are there, want %d", n, flows)
	}
}

// A table is full of connections that ended: what has just begun makes them go.
func TestWhatHasJustBegunDisplacesWhatEnded(t *testing.T) {
	now := mustClock(t)
	from, to, begun := someTable(7000), someTable(7), someFlow(1, 1)
	for i := range flowWays {
		to.add(someFlow(100+i, 1), stateOf(now, 10*time.Second, flagHalfOpen|flagClosing|flagOriginal), now)
	}
	for _, f := range []*headgateFlow{begun, reply(begun)} {
		from.add(f, stateOf(now, 0, flagHalfOpen), now)
	}
	from.add(someFlow(2, 1), stateOf(now, time.Minute, flagHalfOpen), now)
	to.takeAllOf(from, now)
	for f, want := range map[*headgateFlow]bool{begun: true, reply(begun): true, someFlow(2, 1): false} {
		if _, there := to.find(f); there != want {
			t.Errorf("%v came along: %t", f, there)
		}
	}
}

// Datagrams that both sides have confirmed do not keep a connection out.
func TestConnectionsComeBeforeDatagrams(t *testing.T) {
	now := mustClock(t)
	from, to := someTable(7000), someTable(7)
	for i := range uint32(35) {
		f, flags := someFlow(i, 1), flagSeen
		if i%5 != 0 {
			f.Protocol, flags = uint8(lb.UDP), flags|flagDatagrams
		}
		from.add(f, stateOf(now, time.Second, flags), now)
	}
	to.takeAllOf(from, now)
	for i := uint32(0); i < 35; i += 5 {
		if _, there := to.find(someFlow(i, 1)); !there {
			t.Errorf("connection %d is lost", i)
		}
	}
}

// What has not changed since it was taken along is not taken again.
func TestOnlyWhatHasChangedComesAlongAgain(t *testing.T) {
	now := mustClock(t)
	from, to := someTable(7000), someTable(7000)
	to.opened = now
	kept, changed := someFlow(1, 1), someFlow(2, 1)
	for _, f := range []*headgateFlow{kept, changed} {
		from.add(f, stateOf(now, time.Minute, flagSeen), now)
	}
	m := newMove(from, to)
	m.takeChanged()
	for w := range to.flows() {
		w.own()
		w.free()
	}
	w, _ := from.find(changed)
	*w.state |= flagClosing
	m.takeChanged()
	if _, there := to.find(changed); !there || to.count() != 1 {
		t.Errorf("%d flows came along again, what has changed: %t", to.count(), there)
	}
}

// A client closes a connection and uses its port again, for another frontend with the same
// backend, while flows move: both replies have the same key, and may have been noted at one time.
func TestAPortThatIsUsedAgainAtOnce(t *testing.T) {
	now := mustClock(t)
	before, after := someFlow(1, 1), someFlow(1, 1)
	after.Dst = before.To
	for what, c := range map[string]struct {
		replaced     bool
		there, right *headgateFlow
	}{
		"what programs in force have made since":  {false, before, after},
		"what was over before they were replaced": {true, after, after},
	} {
		from, to := someTable(70), someTable(70)
		to.opened = now
		moved := after
		if c.there == after {
			moved = before
		}
		for table, f := range map[*flowTable]*headgateFlow{from: moved, to: c.there} {
			table.add(f, stateOf(now, 0, flagSeen|flagOriginal), now)
			table.add(reply(f), stateOf(now, 0, flagSeen), now)
		}
		m := newMove(from, to)
		m.replaced = c.replaced
		m.takeChanged()
		to.wantFlow(t, what, c.right, stateOf(now, 0, flagSeen|flagOriginal))
		to.wantFlow(t, what+", its reply", reply(c.right), stateOf(now, 0, flagSeen))
	}
}

// The table has a flow that is over, and programs that are in force already have met its reply
// direction with packets of the flow that has its port now. Both its directions go.
func TestAReplyFollowsItsOriginalDirection(t *testing.T) {
	now := mustClock(t)
	before, after := someFlow(1, 1), someFlow(1, 1)
	after.Dst = before.To
	from, to := someTable(70), someTable(70)
	to.add(before, stateOf(now, 3*time.Second, flagSeen|flagOriginal), now)
	to.add(reply(before), stateOf(now, 0, flagSeen), now)
	from.add(after, stateOf(now, time.Second, flagSeen|flagOriginal), now)
	from.add(reply(after), stateOf(now, time.Second, flagSeen), now)
	to.takeAllOf(from, now)
	to.wantFlow(t, "the flow", after, stateOf(now, time.Second, flagSeen|flagOriginal))
	to.wantFlow(t, "its reply", reply(after), stateOf(now, time.Second, flagSeen))
	if _, there := to.find(before); there {
		t.Error("the flow before takes packets and has no answers")
	}
}

// Programs are replaced, which takes a while: what begins meanwhile is known to those that are
// in force already.
func TestFlowsComeAlongWhileProgramsAreReplaced(t *testing.T) {
	now := mustClock(t)
	from, to, begun := someTable(7000), someTable(7000), someFlow(1, 1)
	to.opened = now
	err := takeWhile([]*flowMove{newMove(from, to)}, func() error {
		time.Sleep(10 * time.Millisecond)
		from.add(begun, stateOf(now, 0, flagHalfOpen|flagOriginal), now)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, there := to.find(begun); there {
				return nil
			}
		}
		return errors.New("in a minute not")
	})
	if err != nil {
		t.Error(err)
	}
}

// An agent dies while it gives a way to a flow. A program gives another one meanwhile.
func TestAWayOfAnAgentThatDiedIsFreed(t *testing.T) {
	now := mustClock(t)
	table, abandoned, given := someTable(7), someFlow(1, 1), someFlow(2, 1)
	for _, f := range []*headgateFlow{abandoned, given} {
		table.add(f, stateOf(now, 0, flagSeen), now)
		if w, _ := table.find(f); !w.own() {
			t.Fatal("the way is not to be had")
		}
	}
	err := table.freeAbandoned(func() error {
		for w := range table.allWays(0) {
			if *w.tag != 0 && w.flow.sameKey(given) {
				w.write(given, *w.tag, stateOf(now, 0, flagSeen))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, there := table.find(given); !there || table.count() != 1 {
		t.Errorf("the flow that a program has added is there: %t, of %d", there, table.count())
	}
	for range flowWays {
		if f := someFlow(3+table.count(), 1); table.count() < flowWays && !table.add(f, stateOf(now, 0, flagSeen), now) {
			t.Fatalf("no room beside %d of %d", table.count(), flowWays)
		}
	}
}

// Whoever flushes flows may be stopped while it owns a way, and go on when an agent has freed
// that, and a program has given it to another flow.
func TestAWayThatIsFreedLateStaysWithTheNextFlow(t *testing.T) {
	now := mustClock(t)
	table, flushed, next := someTable(7), someFlow(1, 1), someFlow(2, 1)
	table.add(flushed, stateOf(now, 0, flagSeen), now)
	late, _ := table.find(flushed)
	if !late.own() {
		t.Fatal("the way is not to be had")
	}
	if err := table.freeAbandoned(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	begins := table.at(late.index)
	if !begins.own() {
		t.Fatal("the way is not free")
	}
	late.free() // while a program owns it
	_, _, tag := table.place(next)
	begins.write(next, tag, stateOf(now, 0, flagSeen))
	late.free()
	if w, there := table.find(next); !there || w.index != late.index {
		t.Error("the flow that a program has added is gone")
	}
}

// formerFlow is a flow as earlier objects have it, by what its first packet says.
type formerFlow struct {
	key, to headgateTuple // of that packet, and what it becomes
	flags   headgateFlowFlag
	backend uint32
}

// reversed turns a tuple round, as it is seen at the other hook.
func reversed(t headgateTuple) headgateTuple {
	t.Src, t.Dst, t.SrcPort, t.DstPort = t.Dst, t.Src, t.DstPort, t.SrcPort
	t.Hook = uint8(headgateHookHOOK_IN+headgateHookHOOK_OUT) - t.Hook
	return t
}

// randomFormer makes up a flow of every kind that there was.
func randomFormer(r *rand.Rand) (f formerFlow) {
	addr := func() headgateIpAddr {
		if r.IntN(2) == 0 {
			return headgateIpAddr{Word: [4]uint32{2: 0xffff0000, 3: r.Uint32()}}
		}
		return headgateIpAddr{Word: [4]uint32{r.Uint32(), r.Uint32(), r.Uint32(), r.Uint32()}}
	}
	port := func() uint16 { return uint16(1 + r.IntN(0xffff)) }
	in, out := uint8(headgateHookHOOK_IN), uint8(headgateHookHOOK_OUT)
	f.key = headgateTuple{Src: addr(), Dst: addr(), SrcPort: port(), DstPort: port(), Protocol: []uint8{6, 17, 132}[r.IntN(3)], Hook: in}
	f.to, f.backend = f.key, r.Uint32()
	switch r.IntN(5) {
	case 0: // to a backend
		f.to.Dst, f.to.DstPort, f.flags = addr(), port(), headgateFlowFlagFLOW_TO_BACKEND|headgateFlowFlagFLOW_COUNTED
	case 1: // of a pod, which may be the backend itself
		f.to.Dst, f.to.DstPort, f.to.SrcPort, f.flags = addr(), port(), port(), headgateFlowFlagFLOW_TO_BACKEND
	case 2: // to another node, where it leaves
		f.key.Hook, f.to.Hook = out, out
		f.to.Src, f.to.SrcPort, f.backend = addr(), port(), 0
	case 3: // to nobody
		f.to.Dst, f.to.DstPort, f.flags, f.backend = addr(), 0, headgateFlowFlagFLOW_REFUSED, 0
	case 4: // past the Services
		f.to.SrcPort, f.flags, f.backend = port(), headgateFlowFlagFLOW_BYPASS, 0
	}
	return f
}

// TestFlowsOfAnLRUHashComeAlong has flows of all kinds in both of their directions as earlier
// objects have noted them, in every state.
func TestFlowsOfAnLRUHashComeAlong(t *testing.T) {
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for range 10_000 {
		former, seq := randomFormer(random), random.Uint32()
		halfOpen, replied, at := random.IntN(2) == 0, random.IntN(2) == 0, uint64(time.Hour)+random.Uint64N(uint64(time.Hour))
		one := hashedFlow{To: former.to, LastSeenNs: at, BackendID: former.backend, Flags: former.flags | headgateFlowFlagFLOW_SEEN}
		other := hashedFlow{To: reversed(former.key), LastSeenNs: at, BackendID: former.backend, NextSeq: seq, Flags: former.flags & headgateFlowFlagFLOW_BYPASS}
		if halfOpen {
			one.Flags |= headgateFlowFlagFLOW_HALF_OPEN
		}
		if replied {
			other.Flags |= headgateFlowFlagFLOW_SEEN
		}
		if former.flags&headgateFlowFlagFLOW_TO_BACKEND != 0 {
			other.Flags |= headgateFlowFlagFLOW_REPLY
		}
		key := reversed(former.to)
		wantHashed(t, former, &former.key, &one, former.backend, halfOpen, true)
		wantHashed(t, former, &key, &other, map[bool]uint32{true: seq}[key.Protocol == uint8(lb.TCP)], !replied, false)
	}
}

// wantHashed checks what becomes of one direction.
func wantHashed(t *testing.T, of formerFlow, key *headgateTuple, h *hashedFlow, known uint32, halfOpen, original bool) {
	t.Helper()
	f, state := h.flow(key)
	w := way{seen: state}
	if got := (headgateTuple{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, DstPort: f.DstPort, Protocol: f.Protocol, Hook: f.Hook}); got != *key {
		t.Fatalf("%+v: has the key %+v, want %+v", of, got, *key)
	}
	if f.becomes() != h.To || f.Known != known {
		t.Fatalf("%+v: becomes %+v with %d, want %+v with %d", of, f.becomes(), f.Known, h.To, known)
	}
	if w.isHalfOpen() != halfOpen || w.has(headgateFlowFlagFLOW_ORIGINAL) != original || w.has(headgateFlowFlagFLOW_DATAGRAMS) != (key.Protocol != uint8(lb.TCP)) {
		t.Fatalf("%+v: has state %#x; half-open %t, original %t", of, state, halfOpen, original)
	}
	if idle := w.idle(int64(h.LastSeenNs) + int64(time.Minute)); idle < time.Minute-unit || idle > time.Minute+unit {
		t.Fatalf("%+v: was idle for %v a minute later", of, idle)
	}
}
