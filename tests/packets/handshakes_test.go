package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestHandshakesKeepTheirPorts has 64 source ports towards each remote backend. NodePorts share the last 32.
func TestHandshakesKeepTheirPorts(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 29968, Last: 30031} })
	for _, b := range []book{v4, v6} {
		c := cast{b, r, lb.TCP}
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: handshakesKeepTheirPorts}, c) })
		t.Run(b.family()+" silent", func(t *testing.T) { r.tell(t, story{tell: silentHandshakesKeepTheirPorts}, c) })
		t.Run(b.family()+" all taken", func(t *testing.T) { r.tell(t, story{tell: handshakesMakeRoomForEachOther}, c) })
	}
}

// handshake is a SYN that left for the backend.
type handshake struct{ sent, left packet }

// shake begins a handshake.
func (c cast) shake(t *testing.T, client netip.AddrPort) handshake {
	t.Helper()
	backend := at(c.remote, 8080)
	p := c.packet(client, at(c.vip, 80), 0)
	c.becomes(t, "a SYN goes to the backend", in, uplink, p, p.to(p.src, backend))
	return handshake{p, c.comesOut(t, "and leaves", out, tunnel, p.to(p.src, backend))}
}

// shakes begins handshakes of clients of so many networks, and moves them five seconds ahead: a slow test does not make
// them silent.
func (c cast) shakes(t *testing.T, client netip.Addr, count uint16) (all []handshake) {
	t.Helper()
	for i := range count {
		client = neighbour(client)
		all = append(all, c.shake(t, at(client, 40000+i)))
	}
	ahead := uint64(5)
	c.age(t, -ahead)
	return all
}

// lost returns the handshakes whose answer does not lead back to the client.
func (c cast) lost(t *testing.T, all []handshake) (lost []handshake) {
	t.Helper()
	for _, h := range all {
		a := h.left.answer("SA", nil)
		verdict, got := c.run(t, in, tunnel, a.frame(t))
		if verdict != pass || string(got) != string(a.to(at(c.remote, 8080), h.sent.src).frame(t)) {
			lost = append(lost, h)
		}
	}
	return lost
}

// handshakesKeepTheirPorts has handshakes under way hold 38 of 64 ports, and connections come until 62 are
// taken.
func handshakesKeepTheirPorts(t *testing.T, c cast) {
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	under := c.shakes(t, c.client, 38)
	later := c.crowdFrom(c.other, 50000)
	for i := range 24 {
		if !later.begin(t) {
			t.Fatalf("connection %d finds no port, though %d are free", i+1, 26-i)
		}
	}
	if lost := c.lost(t, under); len(lost) > 0 {
		t.Fatalf("%d of %d handshakes lost their ports though others are free", len(lost), len(under))
	}
	for _, h := range under {
		c.becomes(t, "the client confirms it", out, tunnel, h.sent.to(h.sent.src, backend).with("A"), h.left.with("A"))
	}
	if !later.keeps(t) {
		t.Error("a later connection lost its port though others are free")
	}
}

// silentHandshakesKeepTheirPorts has handshakes hold all ports that are not shared, and no shared one.
func silentHandshakesKeepTheirPorts(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	var under []handshake
	for port := uint16(29968); port < 30000; port++ {
		h := c.shake(t, at(c.client, port))
		if h.left.src.Port() != port {
			t.Fatalf("port %d is free, and its client gets %d", port, h.left.src.Port())
		}
		under = append(under, h)
	}
	c.age(t, 2)
	later := c.crowdFrom(c.other, 50000)
	for range 12 {
		if !later.begin(t) {
			t.Fatal("a connection finds no port though shared ones are free")
		}
	}
	if lost := c.lost(t, under); len(lost) > 0 {
		t.Errorf("%d of %d silent handshakes lost their ports though all shared ones were free", len(lost), len(under))
	}
}

// handshakesMakeRoomForEachOther has silent connections hold 4 of 64 ports, and handshakes under way all others.
func handshakesMakeRoomForEachOther(t *testing.T, c cast) {
	backends := []netip.AddrPort{at(c.remote, 8080), at(c.remote2, 8080)}
	c.set(t, "web", c.hashed(lb.Random, backends[0]))
	open := c.crowdFrom(c.other, 50000)
	for range 4 {
		open.begin(t)
	}
	c.age(t, 20)
	under := c.shakes(t, c.client, 60)
	if lost := c.lost(t, under); len(lost) > 0 {
		t.Fatalf("%d of %d handshakes lost their ports though there is one for each", len(lost), len(under))
	}
	late := c.shake(t, at(c.other, 49000))
	if lost := c.lost(t, under); len(lost) != 1 || lost[0].left.src != late.left.src {
		t.Errorf("the handshake that comes where all ports are taken leaves as %s; those that lost theirs: %v", late.left.src, lost)
	}
	if lost := c.lost(t, []handshake{late}); len(lost) > 0 {
		t.Error("its answer does not lead back to its client")
	}
	if !open.keeps(t) {
		t.Error("a connection made room where a handshake could")
	}
	c.set(t, "web", c.hashed(lb.Random, backends...))
	for client := range uint16(16) {
		p := c.packet(at(c.other, 48000+client), at(c.vip, 80), 0)
		c.run(t, in, uplink, p.frame(t))
	}
	if n := c.counters(t)["choice_avoided"] - c.counted["choice_avoided"]; n > 0 {
		t.Errorf("%d clients are kept from a backend to which handshakes make room", n)
	}
}
