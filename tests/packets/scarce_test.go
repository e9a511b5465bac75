package packets

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// TestScarcePorts has fewer ports than clients of one remote backend.
func TestScarcePorts(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 16384, Last: 16399} })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: scarcePorts}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" dropped here", func(t *testing.T) { r.tell(t, story{tell: whatThisNodeDropsIsNoFailure}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" no address", func(t *testing.T) { r.tell(t, story{tell: aDeviceWithoutAnAddressIsNoFailure}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" shares", func(t *testing.T) { r.tell(t, story{tell: aClientHasAShareOfThePorts}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" share of a network", func(t *testing.T) { r.tell(t, story{tell: aNetworkHasAShareOfThePorts}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" no share", func(t *testing.T) { r.tell(t, story{tell: silentConnectionsGiveUpTheirPorts}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" half open", func(t *testing.T) { r.tell(t, story{tell: halfOpenConnectionsGiveUpTheirPorts}, cast{b, r, lb.TCP}) })
	}
}

// crowd is connections to one backend, by a node that has few ports.
type crowd struct {
	cast
	next   uint16
	client netip.Addr
	open   []struct{ sent, left packet }
}

// crowdFrom is a crowd of which each connection is of another client, from one on.
func (c cast) crowdFrom(client netip.Addr, port uint16) *crowd {
	return &crowd{cast: c, next: port, client: client}
}

// begin begins a connection of another client, and says whether it got a port.
func (c *crowd) begin(t *testing.T) bool {
	t.Helper()
	c.client = neighbour(c.client)
	return c.again(t)
}

// again begins a connection of the same client.
func (c *crowd) again(t *testing.T) bool {
	t.Helper()
	c.next++
	return c.beginFrom(t, at(c.client, c.next))
}

// neighbour is a client in the next network: the next /24, with IPv6 the next /64.
func neighbour(a netip.Addr) netip.Addr {
	if !a.Is4() {
		b := a.As16()
		b[7]++
		return netip.AddrFrom16(b)
	}
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+256)
	return netip.AddrFrom4(b)
}

func (c *crowd) beginFrom(t *testing.T, client netip.AddrPort) bool {
	t.Helper()
	backend := at(c.remote, 8080)
	p := c.packet(client, at(c.vip, 80), 0)
	c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(p.src, backend))
	if verdict, _ := c.run(t, out, tunnel, p.to(p.src, backend).frame(t)); verdict == redirect {
		return false // a reset
	}
	left := c.comesOut(t, "a later one leaves", out, tunnel, p.to(p.src, backend).with("A"))
	c.open = append(c.open, struct{ sent, left packet }{p, left})
	a := left.answer("SA", nil)
	c.becomes(t, "the answer", in, tunnel, a, a.to(backend, p.src))
	c.becomes(t, "the client confirms it", out, tunnel, p.to(p.src, backend).with("A"), left.with("A"))
	return true
}

// The SYN of a client finds no port, and comes again a second later.
func whatThisNodeDropsIsNoFailure(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	all := c.crowdFrom(c.client, 40000)
	for all.begin(t) {
		if all.next > 41000 {
			t.Fatal("there is always a port")
		}
	}
	p := c.packet(at(c.client, all.next), at(c.vip, 80), 0)
	c.age(t, 1)
	c.fails(t, "a SYN again that was dropped here", 0, func() { c.becomes(t, "again", in, uplink, p, p.to(p.src, backend)) })
}

// The device on which a backend is has no address that its answers could come to.
func aDeviceWithoutAnAddressIsNoFailure(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	bare := maps.Clone(c.devices)
	bare[tunnel] = plan.Device{Index: bare[tunnel].Index, Name: tunnel}
	must(t, c.dp.SetDevices(slices.Collect(maps.Values(bare))))
	t.Cleanup(func() { must(t, c.dp.SetDevices(slices.Collect(maps.Values(c.devices)))) })
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 0)
	c.becomes(t, "a SYN", in, uplink, p, p.to(p.src, backend))
	c.refused(t, "it does not leave", out, tunnel, p.to(p.src, backend))
	c.age(t, 1)
	c.fails(t, "a SYN again that was dropped here", 0, func() { c.becomes(t, "again", in, uplink, p, p.to(p.src, backend)) })
}

func scarcePorts(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	all := c.crowdFrom(c.client, 40000)
	for range 100 {
		all.begin(t)
	}
	open := all.open
	if len(open) > 16 || len(open) < 12 {
		t.Errorf("%d flows leave by 16 ports", len(open))
	}
	if n := c.counters(t)["drop snat_exhausted"] - c.counted["drop snat_exhausted"]; n != uint64(100-len(open)) {
		t.Errorf("%d drops are counted, want %d", n, 100-len(open))
	}
	if now := c.counters(t); now["drop snat_exhausted of web"]-c.counted["drop snat_exhausted of web"] != now["drop snat_exhausted"]-c.counted["drop snat_exhausted"] {
		t.Error("they are not those of the Service")
	}
	for _, f := range open {
		p := f.sent.with("FA")
		c.becomes(t, "the client is done", in, uplink, p, p.to(p.src, backend))
		c.becomes(t, "which the backend hears", out, tunnel, p.to(p.src, backend), f.left.with("FA").to(f.left.src, backend))
	}
	c.age(t, 4) // a second less than after which it would lose it, as time goes on meanwhile
	if all.begin(t) && len(all.open) > 16 {
		t.Error("a connection that is half open lost its port")
	}
	for _, f := range open {
		a := f.left.answer("FA", nil)
		c.becomes(t, "so is the backend", in, tunnel, a, a.to(backend, f.sent.src))
	}
	if all.begin(t) && len(all.open) > 16 {
		t.Error("a connection lost its port in the moment that it was closed")
	}
	c.age(t, 5)
	for range 4 {
		if !all.begin(t) {
			t.Error("closed connections keep their ports")
		}
	}
}

// aClientHasAShareOfThePorts has one client take all ports, as an attacker does, or a
// gateway: others find one, and so does the client, of those that are silent for longest.
func aClientHasAShareOfThePorts(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	greedy, other := c.crowdFrom(c.client, 20000), c.crowdFrom(c.other, 30000)
	for greedy.again(t) {
		if len(greedy.open) > 16 {
			t.Fatal("there is always a port")
		}
	}
	c.age(t, 5)
	first := greedy.open[0]
	c.becomes(t, "one goes on", out, tunnel, first.sent.to(first.sent.src, backend).with("A"), first.left.with("A"))
	for range 4 {
		if !other.begin(t) {
			t.Error("another client finds no port")
		}
	}
	if !greedy.again(t) {
		t.Error("the client finds none of its own")
	}
	c.becomes(t, "what is in use stays", out, tunnel, first.sent.to(first.sent.src, backend).with("A"), first.left.with("A"))
	for _, f := range other.open {
		c.becomes(t, "what others have stays", out, tunnel, f.sent.to(f.sent.src, backend).with("A"), f.left.with("A"))
	}
}

// aNetworkHasAShareOfThePorts has an attacker hold all ports by many addresses of one network.
func aNetworkHasAShareOfThePorts(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	greedy, other := c.crowdFrom(c.client, 20000), c.crowdFrom(c.other, 30000)
	for client := c.client; greedy.beginFrom(t, at(client, 20000)); client = client.Next() {
		if len(greedy.open) > 16 {
			t.Fatal("there is always a port")
		}
	}
	c.age(t, 5)
	for i := range 8 {
		if !other.begin(t) {
			t.Errorf("client %d of another network finds no port", i+1)
		}
	}
	if !other.keeps(t) {
		t.Error("what others have does not stay")
	}
}

// silentConnectionsGiveUpTheirPorts has each of the connections that hold all ports be of another
// network.
func silentConnectionsGiveUpTheirPorts(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	all := c.crowdFrom(c.client, 20000)
	for all.begin(t) {
		if len(all.open) > 16 {
			t.Fatal("there is always a port")
		}
	}
	c.age(t, 30)
	late := c.crowdFrom(c.other, 30000)
	if late.begin(t) {
		t.Error("a connection that was silent for half a minute has lost its port")
	}
	c.age(t, 40)
	if !late.begin(t) {
		t.Error("a connection that was silent for more than a minute keeps its port")
	}
	if !late.keeps(t) {
		t.Error("the new connection does not go on")
	}
}

// keeps says whether all connections go on to the backend.
func (c *crowd) keeps(t *testing.T) bool {
	t.Helper()
	for _, f := range c.open {
		verdict, got := c.run(t, out, tunnel, f.sent.to(f.sent.src, at(c.remote, 8080)).with("A").frame(t))
		if verdict != pass || string(got) != string(f.left.with("A").frame(t)) {
			return false
		}
	}
	return true
}

// halfOpenConnectionsGiveUpTheirPorts has more SYNs than there are ports, and
// connections that nobody has to give up.
func halfOpenConnectionsGiveUpTheirPorts(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	open := c.crowdFrom(c.client, 40000)
	for range 4 {
		if !open.begin(t) {
			t.Fatal("there is no port for one of four")
		}
	}
	for port := range uint16(100) {
		p := c.packet(at(c.other, 1000+port), at(c.vip, 80), 0)
		c.becomes(t, "a SYN goes to the backend", in, uplink, p, p.to(p.src, backend))
		left := c.comesOut(t, "and leaves", out, tunnel, p.to(p.src, backend))
		a := left.answer("SA", nil)
		c.becomes(t, "and is answered", in, tunnel, a, a.to(backend, p.src))
	}
	for _, f := range open.open {
		c.becomes(t, "what works keeps its port", out, tunnel, f.sent.to(f.sent.src, backend).with("A"), f.left.with("A"))
		a := f.left.answer("A", nil)
		c.becomes(t, "both directions", in, tunnel, a, a.to(backend, f.sent.src))
	}
	if !open.begin(t) {
		t.Error("there is no port for one more")
	}
}

// TestNeighboursFindPorts has clients that differ in the last byte of their address,
// and in that of their port, so that few ports are the first choice of many: what
// else they choose has to be spread over all there are.
func TestNeighboursFindPorts(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: neighboursFindPorts}, cast{b, r, lb.TCP}) })
	}
}

func neighboursFindPorts(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	all := c.crowdFrom(c.client, 0)
	client := c.client
	for range 200 {
		client = client.Next()
		for port := range uint16(8) {
			if !all.beginFrom(t, at(client, 40000+port)) {
				t.Fatalf("no port is left for flow %d", len(all.open)+1)
			}
		}
	}
	owner := map[netip.AddrPort]netip.AddrPort{}
	for _, f := range all.open {
		if other, taken := owner[f.left.src]; taken {
			t.Errorf("%s and %s both leave as %s", other, f.sent.src, f.left.src)
		}
		owner[f.left.src] = f.sent.src
	}
}

// TestOneClientHasAllPorts has one client hold $HEADGATE_HELD connections to one remote
// backend, each with a source port of its own.
func TestOneClientHasAllPorts(t *testing.T) {
	held := number(t, "HEADGATE_HELD", 3_000)
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 5 * uint32(held) })
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
		all, taken := c.crowdFrom(c.client, 1024), map[netip.AddrPort]bool{}
		for i := range held {
			if !all.again(t) {
				t.Errorf("no port is left for connection %d of %d", i+1, held)
				break
			}
			taken[all.open[i].left.src] = true
		}
		t.Logf("figure held_connections %d", len(taken)) // make bench reads it
		if len(taken) != len(all.open) {
			t.Errorf("%d connections leave by %d ports", len(all.open), len(taken))
		}
	}}, cast{v4, r, lb.TCP})
}
