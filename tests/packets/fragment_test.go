package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// fragmentStories are told by TestPackets.
var fragmentStories = []story{
	{"Fragments follow the first of their datagram", fragmentsFollowTheFirst},
	{"Fragments leave by a device and come back", fragmentsLeaveAndComeBack},
	{"Fragments of two datagrams do not mix", fragmentsDoNotMix},
	{"A fragment before the first one is left alone", fragmentBeforeTheFirst},
}

// cut returns the fragments of a packet.
func cut(p packet, id uint32, size, count int) []packet {
	var parts []packet
	for i := range count {
		q := p
		q.fragment = &fragment{id: id, offset: i * size, size: size}
		parts = append(parts, q)
	}
	return parts
}

func fragmentsFollowTheFirst(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 2900)
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {0, 0, 2, 2, 1, 1}} {
		c.forget(t)
		parts := cut(p, 77, 1000, 3)
		for _, i := range order {
			c.becomes(t, "a part of the first datagram", in, uplink, parts[i], parts[i].to(p.src, backend))
		}
		later := cut(p.with("A"), 78, 1000, 3)
		for _, i := range order {
			c.becomes(t, "a part of a later one", in, uplink, later[i], later[i].to(p.src, backend))
		}
		answer := cut(p.to(p.src, backend).answer("A", p.payload), 79, 1000, 3)
		for _, i := range order {
			c.becomes(t, "a part of the answer", out, uplink, answer[i], answer[i].to(at(c.vip, 80), p.src))
		}
	}
}

func fragmentsLeaveAndComeBack(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 2900)
	whole := p.to(p.src, backend)
	c.becomes(t, "a flow begins", in, uplink, p, whole)
	leaving := c.comesOut(t, "and leaves", out, tunnel, whole)
	for _, part := range cut(whole, 1, 1000, 3) {
		c.becomes(t, "a part leaves", out, tunnel, part, part.to(leaving.src, backend))
	}
	for _, part := range cut(leaving.answer("A", p.payload), 2, 1000, 3) {
		c.becomes(t, "a part comes back", in, tunnel, part, part.to(backend, p.src))
	}
}

func fragmentsDoNotMix(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	c.set(t, "one", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	c.set(t, "two", c.frontend(lb.LoadBalancerIP, at(c.vip, 81), at(c.local2, 8081)))
	one := c.packet(at(c.client, 40000), at(c.vip, 80), 2000)
	two := c.packet(at(c.client, 40000), at(c.vip, 81), 2000)
	a, b := cut(one, 1, 1480, 2), cut(two, 2, 1480, 2)
	for i := range a {
		c.becomes(t, "a part of the one", in, uplink, a[i], a[i].to(one.src, at(c.local, 8080)))
		c.becomes(t, "a part of the other", in, uplink, b[i], b[i].to(two.src, at(c.local2, 8081)))
	}
}

// fragmentBeforeTheFirst says what is, not what should be: such a fragment
// goes to the node, which waits in vain for the others.
func fragmentBeforeTheFirst(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 2000)
	parts := cut(p, 77, 1000, 2)
	c.untouched(t, "the last part", in, uplink, parts[1])
	c.becomes(t, "the first part", in, uplink, parts[0], parts[0].to(p.src, backend))
	c.becomes(t, "the last part, again", in, uplink, parts[1], parts[1].to(p.src, backend))
}
