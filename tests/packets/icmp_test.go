package packets

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
)

// icmpStories are told by TestPackets.
var icmpStories = []story{
	{"ICMP errors find their way", icmpErrorsFindTheirWay},
	{"ICMP errors of others are left alone", icmpErrorsOfOthersAreLeftAlone},
}

// icmpError is an ICMP message about a packet that somebody sent.
type icmpError struct {
	from, to   netip.Addr
	kind, code uint8
	word       uint32 // the second one of the header, such as an MTU
	about      []byte // from its IP header on
}

func (e icmpError) frame(tb testing.TB) []byte {
	tb.Helper()
	return e.packet().frame(tb)
}

func (e icmpError) packet() packet {
	p := packet{src: at(e.from, 0), dst: at(e.to, 0), protocol: lb.Protocol(layers.IPProtocolICMPv4)}
	var pseudo []byte
	message := binary.BigEndian.AppendUint32([]byte{e.kind, e.code, 0, 0}, e.word)
	message = append(message, e.about...)
	if !p.is4() {
		p.protocol = lb.Protocol(layers.IPProtocolICMPv6)
		pseudo = append(e.from.AsSlice(), e.to.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(message)))
		pseudo = append(pseudo, 0, 0, 0, uint8(p.protocol))
	}
	binary.BigEndian.PutUint16(message[2:], sum16(pseudo, message))
	p.payload = message
	return p
}

// errors are the kinds of errors of a family: RFC 792, RFC 4443.
func (b book) errors() map[string]icmpError {
	if b.client.Is4() {
		return map[string]icmpError{
			"port unreachable":     {kind: 3, code: 3},
			"fragmentation needed": {kind: 3, code: 4, word: 1400},
			"time exceeded":        {kind: 11},
			"parameter problem":    {kind: 12, word: 8 << 24},
		}
	}
	return map[string]icmpError{
		"port unreachable":  {kind: 1, code: 4},
		"packet too big":    {kind: 2, word: 1400},
		"time exceeded":     {kind: 3},
		"parameter problem": {kind: 4, word: 8},
	}
}

// portUnreachable is what somebody says about a packet.
func (c cast) portUnreachable(tb testing.TB, from netip.Addr, about packet) icmpError {
	tb.Helper()
	e := c.errors()["port unreachable"]
	e.from, e.to, e.about = from, about.src.Addr(), quoted(tb, about, 500)
	return e
}

// quoted returns how a packet stands in an error: every byte as its sender
// knows it, up to where the error ends.
func quoted(tb testing.TB, p packet, size int) []byte {
	tb.Helper()
	b := p.datagram(tb)
	return b[:min(size, len(b))]
}

func icmpErrorsFindTheirWay(t *testing.T, c cast) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	for name, e := range c.errors() {
		c.forget(t)
		c.set(t, "local", c.frontend(lb.LoadBalancerIP, vip, local))
		c.set(t, "remote", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
		p := c.packet(at(c.client, 40000), vip, 30)
		c.becomes(t, "a flow begins", in, uplink, p, p.to(p.src, local))
		c.tell(t, "about an answer, from a router: "+name, in, e, c.router, c.router, p.answer("A", nil), p.to(p.src, local).answer("A", nil))
		c.tell(t, "about an answer, from the client: "+name, in, e, c.client, c.client, p.answer("A", nil), p.to(p.src, local).answer("A", nil))
		c.tell(t, "about a request, from the backend: "+name, out, e, c.local, c.vip, p.to(p.src, local), p)
		c.tell(t, "about a request, from the node: "+name, out, e, c.node, c.vip, p.to(p.src, local), p)

		q := c.packet(at(c.client, 40001), at(c.vip2, 80), 30)
		c.becomes(t, "another one begins", in, uplink, q, q.to(q.src, remote))
		moved := q.to(q.src, remote)
		leaving := c.comesOut(t, "and leaves", out, tunnel, moved)
		c.tell(t, "about a request, from a router behind: "+name, in, e, c.router, c.router, leaving, moved)
		c.tell(t, "about a request, from the remote backend: "+name, in, e, c.remote, c.remote, leaving, moved)
		c.tell(t, "and on to the client: "+name, out, e, c.remote, c.vip2, moved, q)
		c.tell(t, "also that of a router, which nobody outside knows: "+name, out, e, c.router, c.vip2, moved, q)
		c.tell(t, "about an answer, from the node: "+name, out, e, c.node, c.tunnel, moved.answer("A", nil), leaving.answer("A", nil))
	}
}

// tell gives an error to a program. It is about a packet as its sender saw it
// at that place, and should be about one as the next one sees it.
func (c cast) tell(t *testing.T, what string, h hook, e icmpError, from, wantFrom netip.Addr, about, want packet) {
	t.Helper()
	for _, size := range []int{28, 36, 38, 48, 56, 58, 1000} {
		if !c.client.Is4() && size < 48 {
			continue
		}
		given, wanted := e, e
		given.from, given.to, given.about = from, about.src.Addr(), quoted(t, about, size)
		wanted.from, wanted.to, wanted.about = wantFrom, want.src.Addr(), quoted(t, want, size)
		c.framesBecome(t, what, h, uplink, given.frame(t), wanted.frame(t))
	}
}

func icmpErrorsOfOthersAreLeftAlone(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 30)
	c.becomes(t, "a flow begins", in, uplink, p, p.to(p.src, at(c.local, 8080)))
	stranger := p.to(at(c.vip, 80), at(c.client, 40001))
	for _, e := range c.errors() {
		for size := range len(stranger.datagram(t)) {
			e.from, e.to, e.about = c.router, c.vip, stranger.datagram(t)[:size]
			c.framesBecome(t, "an error about another flow", in, uplink, e.frame(t), e.frame(t))
		}
	}
}

func TestEchoIsLeftAlone(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		c := cast{b, r, lb.UDP}
		r.set(t, "web", c.frontend(lb.LoadBalancerIP, at(b.vip, 80), at(b.local, 8080)), c.frontend(lb.ClusterIP, at(b.cluster, 80), at(b.local, 8080)))
		for _, kind := range map[bool][]uint8{true: {8, 0}, false: {128, 129}}[b.client.Is4()] {
			for _, to := range []netip.Addr{b.vip, b.cluster, b.node, b.other} {
				e := icmpError{from: b.client, to: to, kind: kind, word: 7<<16 | 1, about: []byte("are you there?")}
				r.framesBecome(t, "echo", in, uplink, e.frame(t), e.frame(t))
				r.framesBecome(t, "echo", out, uplink, e.frame(t), e.frame(t))
			}
		}
	}
}
