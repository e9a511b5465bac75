package packets

import (
	"math"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// handOverStories are told by TestPackets.
var handOverStories = []story{
	{"No flow begins while they are handed over, and others go on", noFlowBeginsWhileTheyAreHandedOver},
}

// handsOver says whether flows are handed over: each packet is looked at then.
func (c cast) handsOver(t *testing.T, yes bool) {
	t.Helper()
	c.say(t, "hands_over", map[bool]uint64{true: 1}[yes])
	c.say(t, "removed_ns", map[bool]uint64{true: math.MaxInt64}[yes])
}

func noFlowBeginsWhileTheyAreHandedOver(t *testing.T, c cast) {
	vip, far, local, remote := at(c.vip, 80), at(c.vip2, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, far, remote))
	p := c.establish(t, at(c.client, 40000), vip, local)
	q := c.packet(at(c.client, 40001), far, 3)
	c.becomes(t, "one to another node begins", in, uplink, q, q.to(q.src, remote))
	left := c.comesOut(t, "and leaves", out, tunnel, q.to(q.src, remote))
	defer c.handsOver(t, false)
	c.handsOver(t, true)
	flows := c.flows(t)

	c.untouched(t, "what is new goes to the stack", in, uplink, c.packet(at(c.client, 40002), vip, 3))
	own := c.packet(at(c.tunnel, 40003), remote, 3)
	c.untouched(t, "so does what the node itself begins", out, tunnel, own)
	if got := c.flows(t); got != flows {
		t.Errorf("there are %d directions of flows, want the %d from before", got, flows)
	}
	c.becomes(t, "the client goes on", in, uplink, p.with("A"), p.with("A").to(p.src, local))
	a := p.to(p.src, local).answer("A", nil)
	c.becomes(t, "so does the backend", out, uplink, a, a.to(vip, p.src))
	a = left.answer("SA", nil)
	c.becomes(t, "the one on the other node", in, tunnel, a, a.to(remote, q.src))
	c.becomes(t, "and what goes there", out, tunnel, q.to(q.src, remote).with("A"), left.with("A"))
	if c.protocol == lb.TCP {
		c.isReset(t, "what nobody knows is lost", in, uplink, c.packet(at(c.client, 40004), vip, 3).with("A"))
	}

	c.handsOver(t, false)
	n := c.packet(at(c.client, 40005), vip, 3)
	c.becomes(t, "an agent is back: a flow begins", in, uplink, n, n.to(n.src, local))
}
