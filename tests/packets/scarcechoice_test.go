package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestScarcePortsHaveClientsGetAnotherBackend has 16 ports towards each of two remote backends: who
// comes where all of them are taken gets the other one, until that has none left, either.
func TestScarcePortsHaveClientsGetAnotherBackend(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 16384, Last: 16399} })
	for _, a := range []lb.Algorithm{lb.Random, lb.Maglev} {
		for _, b := range []book{v4, v6} {
			t.Run(a.String()+" "+b.family(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.findsTheOtherBackend(t, a) }}, cast{b, r, lb.TCP})
			})
		}
	}
}

func (c cast) findsTheOtherBackend(t *testing.T, a lb.Algorithm) {
	backends := []netip.AddrPort{at(c.remote, 8080), at(c.remote2, 8080)}
	c.set(t, "web", c.hashed(a, backends[0]))
	client := c.client
	come := func() (backend netip.AddrPort, leaves bool) {
		client = neighbour(client)
		return c.comesAndLeaves(t, at(client, 40000))
	}
	for range 16 {
		if _, leaves := come(); !leaves {
			t.Fatal("of 16 ports not all are used")
		}
	}
	if _, leaves := come(); leaves {
		t.Fatal("there is a port where all are taken")
	}
	c.set(t, "web", c.hashed(a, backends...))
	for range 16 {
		if backend, leaves := come(); !leaves || backend != backends[1] {
			t.Errorf("a client gets %s, which has a port left: %v", backend, leaves)
		}
	}
	if n := c.counters(t)["choice_avoided"] - c.counted["choice_avoided"]; n == 0 {
		t.Error("no choice is counted that was avoided")
	}
	if _, leaves := come(); leaves {
		t.Error("there is a port where all are taken, of both")
	}
}

// comesAndLeaves takes a connection of a client to a backend through its handshake; false if it
// is answered with a reset in place of that.
func (c cast) comesAndLeaves(t *testing.T, client netip.AddrPort) (backend netip.AddrPort, leaves bool) {
	t.Helper()
	p := c.packet(client, at(c.vip, 80), 0)
	_, made := c.run(t, in, uplink, p.frame(t))
	_, backend, ok := ends(made)
	if !ok {
		t.Fatal("a SYN becomes no packet")
	}
	verdict, made := c.run(t, out, tunnel, p.to(p.src, backend).frame(t))
	if verdict == redirect {
		return backend, false // a reset
	}
	own, _, _ := ends(made)
	a := p.to(own, backend).answer("SA", nil)
	c.becomes(t, "the answer", in, tunnel, a, a.to(backend, p.src))
	c.becomes(t, "the client confirms it", out, tunnel, p.to(p.src, backend).with("A"), p.to(own, backend).with("A"))
	return backend, true
}
