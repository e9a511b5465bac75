package packets

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// balancingStories are told by TestPackets.
var balancingStories = []story{
	{"Flows are in flight from confirmed to closed", flowsAreInFlightUntilClosed},
	{"What makes room for others is in flight no more", whatMakesRoomIsInFlightNoMore},
	{"A broken flow is in flight no more", aBrokenFlowIsInFlightNoMore},
	{"A hash sends a flow where every node would", aHashSendsAFlowWhereEveryNodeWould},
	{"A flow whose slot has moved finds its backend", aFlowWhoseSlotHasMovedFindsItsBackend},
	{"Clients outside are spread as the algorithm says", clientsOutsideAreSpread},
}

// inFlight returns the connections in flight of all backends together, and of each.
func (r *rig) inFlight(tb testing.TB) (sum uint32, each map[netip.AddrPort]uint32) {
	tb.Helper()
	i, err := datapath.Inspect(r.root)
	must(tb, err)
	defer i.Close()
	each = map[netip.AddrPort]uint32{}
	for _, b := range i.Backends() {
		each[at(b.At.Addr, b.At.Port)] = b.InFlight
		sum += b.InFlight
	}
	return sum, each
}

func (r *rig) wantInFlight(tb testing.TB, when string, want uint32) {
	tb.Helper()
	if got, each := r.inFlight(tb); got != want {
		tb.Errorf("%s: %v in flight, want %d in sum", when, each, want)
	}
}

// Another Service keeps the backend, which comes again to the one that loses it.
func aBrokenFlowIsInFlightNoMore(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "other", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), backend))
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local2, 8080)))
	c.wantInFlight(t, "the backend has left", 1)
	for range 2 {
		c.isReset(t, "the flow is broken", in, uplink, p.with("A"))
		c.wantInFlight(t, "it has been reset", 0)
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	c.becomes(t, "the port begins anew", in, uplink, p, p.to(client, backend))
	c.wantInFlight(t, "another has begun", 0)
}

func flowsAreInFlightUntilClosed(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 0)
	c.becomes(t, "the first packet", in, uplink, p, p.to(client, backend))
	c.wantInFlight(t, "begun", 0)
	c.becomes(t, "it is sent again", in, uplink, p, p.to(client, backend))
	c.wantInFlight(t, "begun twice", 0)
	answer := p.to(backend, client)
	if c.protocol != lb.TCP {
		c.becomes(t, "the answer", out, uplink, answer, answer.to(vip, client))
		c.becomes(t, "the next query", in, uplink, p, p.to(client, backend))
		c.wantInFlight(t, "too young", 0)
		c.age(t, 3)
		c.becomes(t, "a later query", in, uplink, p, p.to(client, backend))
		c.wantInFlight(t, "confirmed", 1)
		return
	}
	for _, step := range []struct {
		way   string
		flags string
		want  uint32
	}{
		{"out", "SA", 0}, {"in", "A", 1}, {"in", "FA", 1}, {"out", "A", 1}, {"out", "FA", 0}, {"in", "A", 0},
		{"in", "S", 0}, {"out", "SA", 0}, {"in", "A", 1}, {"out", "R", 0}, {"in", "S", 1}, {"in", "R", 0},
	} {
		if step.way == "in" {
			c.becomes(t, step.flags, in, uplink, p.with(step.flags), p.with(step.flags).to(client, backend))
		} else {
			c.becomes(t, step.flags, out, uplink, answer.with(step.flags), answer.with(step.flags).to(vip, client))
		}
		c.wantInFlight(t, step.way+" "+step.flags, step.want)
	}
}

func whatMakesRoomIsInFlightNoMore(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for port := range uint16(50) {
		p := c.establish(t, at(c.client, 40000+port), vip, backend)
		if c.protocol != lb.TCP {
			c.age(t, 3)
			c.becomes(t, "a later query", in, uplink, p, p.to(p.src, backend))
		}
	}
	c.wantInFlight(t, "confirmed", 50)
	if corrected, err := c.dp.Recount(); corrected != 0 || err != nil {
		t.Errorf("what is right is corrected for %d backends: %v", corrected, err)
	}
	c.forget(t) // as the kernel does with the least recently used
	if _, err := c.dp.Recount(); err != nil {
		t.Error(err)
	}
	c.wantInFlight(t, "forgotten and counted anew", 0)
}

// forgetSlotChanges lets no slot have been anything else.
func (r *rig) forgetSlotChanges(tb testing.TB) {
	tb.Helper()
	m := r.tables["slot_changes"]
	var key uint32
	var keys []uint32
	for entries := m.Iterate(); entries.Next(&key, new([]byte)); {
		keys = append(keys, key)
	}
	for _, k := range keys {
		must(tb, m.Delete(k))
	}
}

// hashed is a frontend by a hash of the flow.
func (c cast) hashed(a lb.Algorithm, backends ...netip.AddrPort) lb.Frontend {
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backends...)
	slices.SortFunc(f.Members, lb.AddrPort.Compare)
	f.Algorithm = a
	return f
}

// chosen returns the backends of flows from many ports, which are forgotten first.
func (c cast) chosen(t *testing.T, flags string) (out []netip.AddrPort) {
	t.Helper()
	c.forget(t)
	for port := range uint16(60) {
		p := c.packet(at(c.client, 40000+port), at(c.vip, 80), 0).with(flags)
		out = append(out, c.comesOut(t, "the first packet", in, uplink, p).dst)
	}
	return out
}

func aHashSendsAFlowWhereEveryNodeWould(t *testing.T, c cast) {
	a, b, d := at(c.local, 8080), at(c.local2, 8080), at(c.local2, 8081)
	for _, algorithm := range []lb.Algorithm{lb.Maglev, lb.Stable, lb.SH, lb.DH} {
		c.set(t, "web")
		c.apply(t, c.planner.Sweep())
		c.forgetSlotChanges(t)
		c.set(t, "web", c.hashed(algorithm, a, b, d))
		first := c.chosen(t, "S")
		if algorithm == lb.Maglev || algorithm == lb.Stable {
			for _, backend := range []netip.AddrPort{a, b, d} {
				if !slices.Contains(first, backend) {
					t.Errorf("%s: no flow goes to %s", algorithm, backend)
				}
			}
		} else if len(slices.Compact(slices.Clone(first))) != 1 {
			t.Errorf("%s: flows of one client to one address go to %v", algorithm, first)
		}
		flags := "S"
		if c.protocol == lb.TCP {
			flags = "A" // from within a connection that this node has not seen
		}
		if again := c.chosen(t, flags); !slices.Equal(first, again) {
			t.Errorf("%s: another node would send flows elsewhere", algorithm)
		}
	}
}

func aFlowWhoseSlotHasMovedFindsItsBackend(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return // a datagram always begins anew
	}
	a, b, d := at(c.local, 8080), at(c.local2, 8080), at(c.local2, 8081)
	c.forgetSlotChanges(t)
	c.set(t, "web", c.hashed(lb.Maglev, a, b))
	before := c.chosen(t, "S")
	c.set(t, "web", c.hashed(lb.Maglev, a, b, d))
	if now := c.chosen(t, "S"); slices.Equal(now, before) {
		t.Fatal("no slot has moved")
	}
	if again := c.chosen(t, "A"); !slices.Equal(before, again) {
		t.Error("connections go on to other backends")
	}
	c.set(t, "web", c.hashed(lb.Maglev, b, d))
	for i, to := range c.chosen(t, "A") {
		if to == a || before[i] == b && to != b {
			t.Errorf("a connection to %s goes on to %s", before[i], to)
		}
	}
}

func clientsOutsideAreSpread(t *testing.T, c cast) {
	backends := []netip.AddrPort{at(c.local, 1), at(c.local, 2), at(c.local, 3), at(c.local, 4), at(c.local, 5)}
	for algorithm, most := range map[lb.Algorithm]uint32{lb.RR: 20, lb.LC: 20, lb.P2C: 23} {
		f := c.hashed(algorithm, backends...)
		c.forget(t)
		if _, err := c.dp.Recount(); err != nil {
			t.Error(err)
		}
		c.set(t, "web", f)
		for port := range uint16(100) {
			c.comesOut(t, "the first packet", in, uplink, c.packet(at(c.client, 40000+port), at(c.vip, 80), 0))
		}
		if _, each := c.inFlight(t); each[backends[0]] > most || each[backends[4]] > most || each[backends[2]] > most {
			t.Errorf("%s: %v, want at most %d each", algorithm, each, most)
		}
	}
}
