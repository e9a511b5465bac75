package packets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// Idle units of the flow clock after which flows may make room, see bpf/abi/flow_types.h,
// and the ways of a set that are the share of datagrams, of bpf/flow/room.h.
const (
	endedUnits       = 60*1e9>>timeShift + 1
	establishedUnits = 7440*1e9>>timeShift + 1
	datagramUnits    = 180*1e9>>timeShift + 1
	oneSidedUnits    = 5 * 1e9 >> timeShift
	datagramWays     = 4
	flagClosing      = 1 << 1
)

// occupant is what stands in a way of the only set of a table.
type occupant struct {
	free, datagrams, halfOpen, closing bool
	own                                bool // the other direction of the flow that begins
	idle                               int  // units of the flow clock
}

func (o occupant) String() string {
	if o.free {
		return "free"
	}
	return fmt.Sprintf("datagrams %t, half-open %t, closing %t, idle %d", o.datagrams, o.halfOpen, o.closing, o.idle)
}

// rank says how gladly an occupant makes room for a flow of datagrams or of TCP: 0 for not
// at all.
func (o occupant) rank(datagrams bool, share int) int {
	limit := establishedUnits
	switch {
	case o.free:
		return 1 << 20
	case datagrams && share >= datagramWays && !o.datagrams:
		return 0 // beyond their share datagrams displace only each other
	case o.halfOpen:
		return 1<<18 + o.idle
	case o.datagrams && !datagrams && share > datagramWays:
		return o.idle + 1 // beyond their share, TCP displaces them
	case o.datagrams:
		limit = datagramUnits
	}
	if o.idle > limit {
		return o.idle
	}
	return 0
}

// isOneSided says whether an occupant goes where TCP would find no room. None has another
// direction.
func (o occupant) isOneSided() bool {
	return !o.free && !o.datagrams && !o.halfOpen && o.idle > oneSidedUnits
}

// crowded is the only set of a table.
type crowded []occupant

// displace gives a way to a direction of a new flow; false if it finds none.
func (c crowded) displace(datagrams bool) bool {
	share, best, most := 0, -1, 0
	for _, o := range c {
		if !o.free && o.datagrams {
			share++
		}
	}
	for i, o := range c {
		if r := o.rank(datagrams, share); r > most {
			best, most = i, r
		}
	}
	if best >= 0 && c[best].own {
		best = -1
	}
	if !datagrams && best < 0 {
		best = slices.IndexFunc(c, occupant.isOneSided)
	}
	if best < 0 {
		return false
	}
	c[best] = occupant{datagrams: datagrams, halfOpen: true, own: true}
	return true
}

// randomOccupants have idle times that differ by more than the clock goes on meanwhile.
func randomOccupants(r *rand.Rand) (set [flowWays]occupant) {
	spans := []int{40, endedUnits - 40, endedUnits + 40, datagramUnits - 40, datagramUnits + 40, establishedUnits - 40, establishedUnits + 40}
	for i, n := range r.Perm(flowWays) {
		set[i] = occupant{free: r.IntN(12) == 0, datagrams: r.IntN(2) == 0, halfOpen: r.IntN(4) == 0, closing: r.IntN(4) == 0, idle: spans[r.IntN(len(spans))] + 4*n}
	}
	return set
}

// fill writes a set into the table, of flows that no packet is of.
func (t flowTable) fill(tb testing.TB, set [flowWays]occupant, clock uint32) {
	tb.Helper()
	t.clear(tb)
	for i, o := range set {
		if o.free {
			continue
		}
		state := uint32(flagSeen) | (clock-uint32(o.idle))<<16
		for flag, has := range map[uint32]bool{flagDatagrams: o.datagrams, flagHalfOpen: o.halfOpen, flagClosing: o.closing} {
			if has {
				state |= flag
			}
		}
		t.put(tb, 4*int64(i), uint32(i)<<1|1)
		t.setState(tb, way{way: uint32(i)}, state)
	}
}

// flowClock is the present as states of flows have it.
func flowClock(tb testing.TB) uint32 {
	tb.Helper()
	var now unix.Timespec
	must(tb, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return uint32(now.Nano() >> timeShift)
}

// TestWhoMakesRoom has flows begin in a table of one set, with occupants of all kinds,
// and compares who makes room with the rules: what is confirmed and lives never does.
func TestWhoMakesRoom(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = flowWays })
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	refused := map[bool]int{}
	for i := range 3000 {
		c := cast{v4, r, lb.TCP}
		if i%2 == 1 {
			c.protocol = lb.UDP
		}
		if i < 2 {
			c.set(t, "web "+c.protocol.String(), c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
		}
		before := randomOccupants(random)
		r.table.fill(t, before, flowClock(t))
		after := crowded(slices.Clone(before[:]))
		original, reply := after.displace(c.protocol != lb.TCP), after.displace(c.protocol != lb.TCP)
		room := original && reply
		p := c.packet(at(c.client, uint16(1024+i)), at(c.vip, 80), 0)
		verdict, _ := r.run(t, in, uplink, p.frame(t))
		if refused[verdict == drop]++; (verdict == drop) == room {
			t.Fatalf("%s has verdict %d among %v", describe(p), verdict, before)
		}
		for n, o := range after {
			if stands := r.table.tag(t, n) == uint32(n)<<1|1; room && stands != (o == before[n] && !o.free) {
				t.Fatalf("%s among %v: way %d still stands: %t", describe(p), before, n, stands)
			}
		}
	}
	if refused[true] == 0 || refused[false] == 0 {
		t.Errorf("refused or not: %v, one of which is never seen", refused)
	}
}
