package packets

import (
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// early is a first packet, and where both directions of its flow will stand.
type early struct {
	cast
	first           packet
	original, reply way
}

// newEarly finds a packet whose flow has its directions in two sets, and forgets the flow.
func newEarly(t *testing.T, c cast) early {
	t.Helper()
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local, 8080)))
	for port := uint16(20000); ; port++ {
		e := early{cast: c, first: c.packet(at(c.client, port), vip, 0)}
		e.is(t, "a first packet", pass)
		for _, w := range c.table.all(t) {
			if w.state&flagOriginal != 0 {
				e.original = w
			} else {
				e.reply = w
			}
		}
		c.table.clear(t)
		if e.original.set != e.reply.set {
			return e
		}
	}
}

func (e early) is(t *testing.T, what string, want uint32) {
	t.Helper()
	if verdict, _ := e.run(t, in, uplink, e.first.frame(t)); verdict != want {
		t.Fatalf("%s has verdict %d, want %d", what, verdict, want)
	}
}

// stopCPU lets the table look as if a CPU had been stopped while it was giving a way of
// the set of the original direction to a flow.
func (e early) stopCPU(t *testing.T) {
	t.Helper()
	e.table.clear(t)
	e.table.setState(t, e.original, flagBusy)
}

// TestAPacketThatComesTooSoon is dropped where another CPU was stopped that adds a flow
// to the same set. It leaves nothing behind, and takes away nothing that may be another's.
func TestAPacketThatComesTooSoon(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: comesTooSoon}, cast{b, r, protocol})
			})
		}
	}
}

// TestABusyWayStallsNobodyForLong has packets come while a way stays busy, as one does that an agent
// was freeing when it was killed. The shortest of several times is that of the program itself.
func TestABusyWayStallsNobodyForLong(t *testing.T) {
	r := newRig(t)
	e := newEarly(t, cast{v4, r, lb.TCP})
	e.stopCPU(t)
	shortest := time.Hour
	for range 20 {
		began := time.Now()
		e.is(t, "a packet while a way is busy", drop)
		shortest = min(shortest, time.Since(began))
	}
	t.Log("a packet takes ", shortest)
	if shortest > 3*time.Millisecond {
		t.Errorf("a packet takes %s", shortest)
	}
	_, err := r.dp.Recount()
	must(t, err)
	e.is(t, "a packet once the agent has counted anew", pass)
}

func comesTooSoon(t *testing.T, c cast) {
	e := newEarly(t, c)
	e.stopCPU(t)
	c.counted = c.counters(t)
	e.is(t, "a packet that comes too soon", drop)
	c.wantCounts(t, map[string]uint64{"drop no_flow": 1, "drop no_flow of web": 1})
	if n := c.flows(t); n != 0 {
		t.Errorf("it leaves %d directions", n)
	}
	e.table.setState(t, e.original, 0)
	e.is(t, "it comes again, and", pass)
	e.table.remove(t, e.original)
	e.stays(t, "a reply direction that was there", func() { e.is(t, "a packet too soon", drop) })
	e.isShared(t)
}

// stays says that a packet leaves the reply direction where it is.
func (e early) stays(t *testing.T, what string, comes func()) {
	t.Helper()
	e.table.setState(t, e.original, flagBusy)
	comes()
	if _, ok := e.table.find(t, e.reply.key); !ok {
		t.Errorf("%s is gone", what)
	}
}

// isShared gives the packet to two CPUs, of which one adds the reply direction, and the
// other finds it there: only the first one could give it back, and must not, as the other
// one may have begun the flow. Where they do not meet nothing is shared, and they try again: on a
// busy machine that may be so for long.
func (e early) isShared(t *testing.T) {
	t.Helper()
	const enough = 30 * time.Second
	for end := time.Now().Add(enough); time.Now().Before(end); {
		e.stopCPU(t)
		for _, got := range e.tryAtOnce(t, in, uplink, []packet{e.first}, []packet{e.first}) {
			if got[0].verdict != drop {
				t.Fatalf("a packet too soon has verdict %d, want %d", got[0].verdict, drop)
			}
		}
		if _, ok := e.table.find(t, e.reply.key); ok {
			return
		}
	}
	t.Errorf("for %s the CPU that has added the reply direction takes it from the one that has found it", enough)
}
