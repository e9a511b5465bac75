package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// fragmentStories are told by TestPackets.
var fragmentStories = []story{
	{"Fragments follow the first of their datagram", fragmentsFollowTheFirst},
	{"Fragments leave by a device and come back", fragmentsLeaveAndComeBack},
	{"Fragments of two datagrams do not mix", fragmentsDoNotMix},
	{"A fragment before the first one is queued", fragmentBeforeTheFirst},
	{"A fragment over the transport header is dropped", fragmentOverHeader},
	{"Fragments that are nobody's leave nothing behind", foreignFragmentsLeaveNothing},
	{"The last of two first fragments says the ports", theLastOfTwoFirstFragmentsSaysThePorts},
	{"IPv6 headers may come after the fragment header", headersAfterTheFragmentHeader},
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

// fragmentBeforeTheFirst is about one packet alone: what becomes of it when the
// first one comes is seen by TestFragmentsInAnyOrder.
func fragmentBeforeTheFirst(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 2000)
	c.refused(t, "it is queued", in, uplink, cut(p, 77, 1000, 2)[1])
	c.wantCounts(t, map[string]uint64{"fragment_queued": 1})
	to := map[string]netip.AddrPort{"a pod": at(c.local, 80), "nobody": at(c.other, 80)}
	for name, dst := range to {
		c.untouched(t, "not one that is for "+name, in, uplink, cut(p.to(p.src, dst), 78, 1000, 2)[1])
	}
	c.untouched(t, "not one on its way out", out, uplink, cut(p, 79, 1000, 2)[1])
	many := c.packet(p.src, p.dst, 1000)
	for i := range 60 {
		many.fragment = &fragment{id: 80, offset: 8 * (i + 3), size: 8}
		c.refused(t, "one of many", in, uplink, many)
	}
	large := c.packet(p.src, p.dst, 9000)
	large.fragment = &fragment{id: 81, offset: 2400, size: 2400}
	c.refused(t, "one too large to be queued", in, uplink, large)
	c.wantCounts(t, map[string]uint64{"fragment_queued": 48, "drop fragment": 13})
}

// fragmentOverHeader is what no sender does who means well: the second
// fragment would replace a part of the transport header of the first one.
func fragmentOverHeader(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 100)
	first, second := p, p
	first.fragment = &fragment{id: 5, size: 40}
	c.becomes(t, "the first part", in, uplink, first, first.to(p.src, backend))
	for _, offset := range []int{8, 16} {
		second.fragment = &fragment{id: 5, offset: offset, size: 40}
		c.refused(t, "one that overlaps the header", in, uplink, second)
	}
	second.fragment = &fragment{id: 5, offset: 24}
	c.becomes(t, "one that does not", in, uplink, second, second.to(p.src, backend))
	c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 1, "drop fragment": 2})
	short := c.packet(at(c.client, 40001), at(c.vip, 80), 100)
	short.fragment = &fragment{id: 6, size: 16}
	c.untouched(t, "a first part without all of its header", in, uplink, short)
}

// headersAfterTheFragmentHeader are only in the first fragment: what looks like
// some in the others is data.
func headersAfterTheFragmentHeader(t *testing.T, c cast) {
	if c.client.Is4() || c.protocol == lb.SCTP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 1000)
	p.inner = []header{destination}
	for _, part := range cut(p, 7, 504, 3) {
		c.becomes(t, "a part", in, uplink, part, part.to(p.src, backend))
	}
}

// foreignFragmentsLeaveNothing, however they overlap: what is between others is theirs,
// and they cannot push out the fragments of Services.
func foreignFragmentsLeaveNothing(t *testing.T, c cast) {
	c.setEverywhere(t)
	backend := c.packet(at(c.client, 40000), at(c.local, 8080), 1000)
	for _, to := range []netip.AddrPort{at(c.other, 80), at(c.remote, 8080)} {
		p := c.packet(at(c.client, 40000), to, 1000)
		for h, device := range map[hook]string{in: uplink, out: tunnel, podIn: podEnd, podOut: podEnd} {
			for _, part := range append(cut(p, 5, 504, 2), cut(p, 5, 8, 3)...) {
				c.untouched(t, "a part", h, device, part)
			}
		}
	}
	for _, part := range cut(backend, 6, 504, 2) {
		c.untouched(t, "a part for a backend that no flow has", in, uplink, part)
	}
	c.wantCounts(t, map[string]uint64{})
	for _, table := range []string{"fragments", "fragment_queue"} {
		if n := c.entries(t, table); n > 0 {
			t.Errorf("%s keeps %d", table, n)
		}
	}
}

// theLastOfTwoFirstFragmentsSaysThePorts where both have the ID of one datagram, also if
// the last is of no flow and for no Service.
func theLastOfTwoFirstFragmentsSaysThePorts(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return
	}
	c.set(t, "one", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	c.set(t, "two", c.frontend(lb.LoadBalancerIP, at(c.vip, 81), at(c.local2, 8081)))
	for i, to := range []netip.AddrPort{at(c.vip, 80), at(c.vip, 81), at(c.vip, 99), at(c.vip, 80)} {
		p := c.packet(at(c.client, uint16(40000+i)), to, 1000)
		backend := map[uint16]netip.AddrPort{80: at(c.local, 8080), 81: at(c.local2, 8081), 99: to}[to.Port()]
		for _, part := range cut(p, 7, 504, 2) {
			c.becomes(t, "a part", in, uplink, part, part.to(p.src, backend))
		}
	}
	answer := c.packet(at(c.local, 8080), at(c.client, 40000), 1000).with("A")
	for _, part := range cut(answer, 7, 504, 2) {
		c.becomes(t, "a part of the answer", out, uplink, part, part.to(at(c.vip, 80), answer.dst))
	}
	foreign := answer.to(at(c.local, 60000), at(c.client, 20000))
	for _, part := range cut(foreign, 7, 504, 2) {
		c.untouched(t, "a part of what is no answer", out, uplink, part)
	}
}
