package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// TestFlowsLeaveWithAnAddressOfTheNode gives the device to other nodes another address, while flows
// leave by it.
func TestFlowsLeaveWithAnAddressOfTheNode(t *testing.T) {
	r := newRig(t)
	r.allowResets(t)
	for _, b := range []book{v4, v6} {
		next := map[bool]string{true: "10.244.1.177", false: "fd00:10:244:1::177"}[b.client.Is4()]
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+p.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { theSourceGoes(t, c, netip.MustParseAddr(next)) }}, cast{b, r, p})
			})
		}
	}
}

func theSourceGoes(t *testing.T, c cast, next netip.Addr) {
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.remote, 8080), at(c.remote2, 8080)))
	p := c.packet(at(c.client, 20177), vip, 3)
	sent := c.comesOut(t, "the first packet", in, uplink, p)
	left := c.comesOut(t, "and leaves", out, tunnel, sent)
	a := left.answer("SA", nil)
	c.becomes(t, "its answer", in, tunnel, a, a.to(a.src, p.src))
	c.becomes(t, "and goes back", out, uplink, a.to(a.src, p.src), a.to(vip, p.src))
	c.set(t, "near", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), at(c.local, 8080)))
	near := c.establish(t, at(c.client, 20178), at(c.vip2, 80), at(c.local, 8080))
	own := map[netip.Addr]bool{c.node: true, c.tunnel: true, next: true}

	c.moveTunnel(t, next)
	defer c.moveTunnel(t, c.tunnel)
	c.freesSources(t, own, 0)
	p, sent, left = p.with("A"), sent.with("A"), left.with("A")
	c.becomes(t, "the next packet, while another device has the address", in, uplink, p, sent)
	c.becomes(t, "and leaves as before", out, tunnel, sent, left)

	delete(own, c.tunnel)
	c.freesSources(t, own, 1)
	c.becomes(t, "a packet after the address went", in, uplink, p, sent)
	if c.protocol == lb.TCP {
		c.isReset(t, "the connection", out, tunnel, sent)
	} else {
		left = c.comesOut(t, "the datagram", out, tunnel, sent)
		if left.src.Addr() != next {
			t.Errorf("it leaves as %s, want %s", left.src, next)
		}
		a = left.answer("A", nil)
		c.becomes(t, "its answer", in, tunnel, a, a.to(a.src, p.src))
	}
	a = left.answer("A", nil)
	a.dst = at(c.tunnel, a.dst.Port())
	c.untouched(t, "an answer to the former address", in, tunnel, a)
	a = near.to(near.src, at(c.local, 8080)).answer("A", nil)
	c.becomes(t, "an answer with the address of a frontend", out, uplink, a, a.to(near.dst, near.src))
	c.freesSources(t, own, 0)
}

// moveTunnel gives the device to other nodes an address in place of the one of its family.
func (c cast) moveTunnel(t *testing.T, a netip.Addr) {
	t.Helper()
	d := c.devices[tunnel]
	if a.Is4() {
		d.IP4 = a
	} else {
		d.IP6 = a
	}
	c.setDevice(t, d)
}

// freesSources removes the flows that leave with another address than these.
func (c cast) freesSources(t *testing.T, own map[netip.Addr]bool, want int) {
	t.Helper()
	freed, err := c.dp.FreeSources(own)
	must(t, err)
	if freed != want {
		t.Errorf("%d flows are removed, want %d", freed, want)
	}
}
