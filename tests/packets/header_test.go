package packets

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
)

// headerStories are told by TestPackets.
var headerStories = []story{
	{"IPv4 options stay where they are", ipv4OptionsStay},
	{"IPv6 extension headers stay where they are", extensionHeadersStay},
	{"More extension headers than anybody sends are left alone", tooManyExtensionHeaders},
	{"A UDP datagram without a checksum stays without", noChecksumStays},
	{"A UDP checksum never becomes none", checksumNeverBecomesNone},
	{"A wrong checksum stays wrong", wrongChecksumStays},
	{"A packet that is cut short is never half rewritten", cutShort},
	{"A frame with VLAN tags keeps them", taggedFrames},
	{"A frame of another kind is left alone", otherFrames},
	{"A packet that stands for many segments is one packet", superPackets},
}

// throughLocal begins a flow to the local backend and takes a packet of it both
// ways.
func (c cast) throughLocal(t *testing.T, p packet) {
	t.Helper()
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	c.becomes(t, "the first packet", in, uplink, p, p.to(p.src, backend))
	c.becomes(t, "a later one", in, uplink, p.with("A"), p.with("A").to(p.src, backend))
	a := p.to(p.src, backend).answer("SA", []byte("answer"))
	c.becomes(t, "the answer", out, uplink, a, a.to(at(c.vip, 80), p.src))
}

func ipv4OptionsStay(t *testing.T, c cast) {
	if !c.client.Is4() {
		return
	}
	for words := 1; words <= 10; words++ {
		c.forget(t)
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 7)
		p.options = bytes.Repeat([]byte{1}, 4*words) // no operation
		c.throughLocal(t, p)
	}
}

// Some extension headers, the longer ones padded (RFC 8200, 4.2).
var (
	hopByHop    = header{layers.IPProtocolIPv6HopByHop, []byte{0, 0, 1, 4, 0, 0, 0, 0}}
	destination = header{layers.IPProtocolIPv6Destination, []byte{0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}
	routing     = header{layers.IPProtocolIPv6Routing, append([]byte{0, 2, 4, 0}, make([]byte, 20)...)}
	// authentication counts its length in other units than the rest.
	authentication = header{layers.IPProtocolAH, append([]byte{0, 4}, make([]byte, 22)...)}
)

// Fragment headers beside the one of a packet, which nobody sends: all of a datagram,
// and a part of one.
var (
	wholeFragment = header{layers.IPProtocolIPv6Fragment, []byte{0, 0, 0, 0, 0, 0, 0, 1}}
	laterFragment = header{layers.IPProtocolIPv6Fragment, []byte{0, 0, 0, 16, 0, 0, 0, 1}}
)

func extensionHeadersStay(t *testing.T, c cast) {
	if c.client.Is4() {
		return
	}
	for _, headers := range [][]header{
		{hopByHop}, {destination}, {routing}, {authentication},
		{hopByHop, destination}, {hopByHop, routing, destination}, {hopByHop, destination, routing, authentication, destination},
	} {
		c.forget(t)
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 7)
		p.headers = headers
		c.throughLocal(t, p)
	}
}

func tooManyExtensionHeaders(t *testing.T, c cast) {
	if c.client.Is4() {
		return
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	for n := tooManyHeaders; n < 20; n++ {
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 7)
		for range n {
			p.headers = append(p.headers, destination)
		}
		c.untouched(t, "in", in, uplink, p)
		c.untouched(t, "out", out, uplink, p)
	}
}

func noChecksumStays(t *testing.T, c cast) {
	if c.protocol == lb.UDP && c.client.Is4() {
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 7)
		p.noChecksum = true
		c.throughLocal(t, p)
	}
}

// checksumNeverBecomesNone tries all values of two bytes of payload, of which
// one makes the sum of the rewritten datagram zero, which goes as all ones
// (RFC 768).
func checksumNeverBecomesNone(t *testing.T, c cast) {
	if c.protocol != lb.UDP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 2)
	c.becomes(t, "the first packet", in, uplink, p, p.to(p.src, backend))
	want := p.to(p.src, backend)
	sum := sum16(want.transport(t)[6:8], p.payload)
	ones := 0
	for _, payload := range []uint16{^sum - 1, ^sum, ^sum + 1, sum - 1, sum, sum + 1, 0, 0xffff} {
		p.payload = []byte{byte(payload >> 8), byte(payload)}
		want.payload = p.payload
		if bytes.Equal(want.transport(t)[6:8], []byte{0xff, 0xff}) {
			ones++
		}
		c.becomes(t, "a later one", in, uplink, p, want)
	}
	if ones == 0 {
		t.Error("no packet has a sum of zero: nothing is tested")
	}
}

func wrongChecksumStays(t *testing.T, c cast) {
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 20)
	frame, want := p.frame(t), p.to(p.src, backend).frame(t)
	frame[len(frame)-1]++
	want[len(want)-1]++
	c.framesBecome(t, "a packet that was damaged on its way", in, uplink, frame, want)
}

// cutShort begins after the IP header: shorter frames the kernel takes for no
// packets.
func cutShort(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 0)
	frame := p.frame(t)
	for size := len(frame) - len(p.transport(t)); size < len(frame); size++ {
		c.framesBecome(t, "a packet that is cut short", in, uplink, frame[:size], frame[:size])
		c.framesBecome(t, "on its way out", out, uplink, frame[:size], frame[:size])
	}
	c.wantCounts(t, map[string]uint64{})
	if n := c.flows(t); n > 0 {
		t.Errorf("%d tuples are kept", n)
	}
}

// taggedFrames have VLAN tags in the frame, as with QinQ, or where a device
// does not take them out. They stay, and all is done behind them.
func taggedFrames(t *testing.T, c cast) {
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	for i, tags := range [][]byte{{0x81, 0, 0, 5}, {0x88, 0xa8, 0, 5}, {0x88, 0xa8, 0, 5, 0x81, 0, 0, 6}, {0x81, 0, 0, 5, 0x81, 0, 0, 6}} {
		p := c.packet(at(c.client, uint16(40000+i)), at(c.vip, 80), 10)
		there := p.to(p.src, backend)
		c.framesBecome(t, "the first packet", in, uplink, p.tagged(t, tags), there.tagged(t, tags))
		c.framesBecome(t, "a later one", in, uplink, p.with("A").tagged(t, tags), there.with("A").tagged(t, tags))
		a := there.answer("SA", []byte("answer"))
		c.framesBecome(t, "the answer", out, uplink, a.tagged(t, tags), a.to(at(c.vip, 80), p.src).tagged(t, tags))
		e := c.errors()["port unreachable"]
		e.from, e.to, e.about = c.local, p.src.Addr(), there.datagram(t)
		want := e
		want.from, want.about = c.vip, p.datagram(t)
		c.framesBecome(t, "an ICMP error", out, uplink, e.packet().tagged(t, tags), want.packet().tagged(t, tags))
	}
}

// tagged is the frame of a packet with tags before the kind of what it holds.
func (p packet) tagged(tb testing.TB, tags []byte) []byte {
	tb.Helper()
	return slices.Concat(p.ethernet()[:12], tags, p.ethernet()[12:], p.datagram(tb))
}

func otherFrames(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 10)
	tag := []byte{0x81, 0, 0, 5}
	for _, kind := range [][]byte{{0x88, 0x47, 0, 5}, {0x08, 0x06, 0, 5}, bytes.Repeat(tag, 3)} {
		c.framesBecome(t, "in", in, uplink, p.tagged(t, kind), p.tagged(t, kind))
		c.framesBecome(t, "out", out, uplink, p.tagged(t, kind), p.tagged(t, kind))
	}
}

// superPackets are what GRO makes of segments, and what a sender leaves to its
// device to cut: longer than any frame, and still one packet.
func superPackets(t *testing.T, c cast) {
	if c.protocol == lb.SCTP {
		return // its segments are packets of their own
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	for i, size := range []int{1448, 1449, 3000} {
		p := c.packet(at(c.client, uint16(40000+i)), at(c.vip, 80), size)
		for _, q := range []packet{p, p.with("A")} {
			got, err := c.trySegments(in, uplink, q.frame(t), 1448)
			if want := q.to(q.src, backend).frame(t); err != nil || got.verdict != pass || !bytes.Equal(got.frame, want) {
				t.Fatalf("%d bytes: %v, verdict %d\ngot  %s\nwant %s", size, err, got.verdict, dump(got.frame), dump(want))
			}
		}
	}
}
