package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

var formerStories = []story{
	{"A Service gives up an address", aServiceGivesUpAnAddress},
	{"A Service gives up a NodePort", aServiceGivesUpANodePort},
	{"Another Service gets a former address", anotherServiceGetsAFormerAddress},
}

// givesUp has a Service give up an address. What began there goes on in both directions, as long as
// the Service has the backend. New clients do not reach it.
func (c cast) givesUp(t *testing.T, kind lb.FrontendKind, old, now, vip netip.AddrPort) {
	t.Helper()
	near, far, next := at(c.local, 8080), at(c.remote, 8080), at(c.local2, 8080)
	c.set(t, "web", c.frontend(kind, old, near))
	p := c.establish(t, at(c.client, 25000), vip, near)
	c.set(t, "web", c.frontend(kind, old, far))
	q := c.packet(at(c.client, 25001), vip, 0)
	toFar := q.to(q.src, far)
	c.becomes(t, "another begins", in, uplink, q, toFar)
	left := c.comesOut(t, "it leaves", out, tunnel, toFar)
	c.set(t, "web", c.frontend(kind, old, far, near))
	goesOn := func(when string) {
		t.Helper()
		for range 2 {
			c.becomes(t, when, in, uplink, p.with("A"), p.with("A").to(p.src, near))
			a := p.to(p.src, near).answer("A", nil)
			c.becomes(t, when+": the answer", out, uplink, a, a.to(vip, p.src))
			c.age(t, 2) // so that the backend is checked again
		}
	}
	goesOn("before")
	c.set(t, "web", c.frontend(kind, now, far, near))
	goesOn("the address is given up")
	answer := left.answer("SA", nil)
	c.becomes(t, "the far backend answers", in, tunnel, answer, answer.to(far, q.src))
	c.becomes(t, "the client goes on", in, uplink, q.with("A"), q.with("A").to(q.src, far))
	c.untouched(t, "a new client", in, uplink, c.packet(at(c.client, 25002), vip, 0))
	c.set(t, "web", c.frontend(kind, now, near, next))
	goesOn("the other backend leaves")
	c.isGone(t, "its backend has left", q)
	c.set(t, "web", c.frontend(kind, old, near, next))
	goesOn("the address is back")
	c.set(t, "web", c.frontend(kind, now, next))
	c.isGone(t, "the last one has left", p)
}

// isGone checks that a packet of a flow does not reach its backend, and that TCP clients hear of that.
func (c cast) isGone(t *testing.T, what string, p packet) {
	t.Helper()
	switch c.protocol {
	case lb.TCP:
		c.isReset(t, what, in, uplink, p.with("A"))
	case lb.UDP:
		c.untouched(t, what, in, uplink, p)
	}
}

func aServiceGivesUpAnAddress(t *testing.T, c cast) {
	c.givesUp(t, lb.LoadBalancerIP, at(c.vip, 80), at(c.vip2, 80), at(c.vip, 80))
}

func aServiceGivesUpANodePort(t *testing.T, c cast) {
	any := unspecified(c.client)
	c.givesUp(t, lb.NodePort, at(any, 30080), at(any, 30081), at(c.node, 30080))
}

func anotherServiceGetsAFormerAddress(t *testing.T, c cast) {
	vip, near, other := at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, near))
	p := c.establish(t, at(c.client, 25000), vip, near)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), near))
	c.set(t, "api", c.frontend(lb.LoadBalancerIP, vip, other))
	q := c.packet(at(c.client, 25001), vip, 0)
	c.becomes(t, "a client of the other Service", in, uplink, q, q.to(q.src, other))
	if c.protocol == lb.TCP {
		c.isReset(t, "the Service of the address has no such backend", in, uplink, p.with("A"))
	}
}
