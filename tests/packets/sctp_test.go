package packets

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// sctpStories are told by TestPackets, once for each family. What the other
// stories say of TCP and UDP holds for SCTP, too.
var sctpStories = []story{
	{"An SCTP checksum is right at every length", sctpChecksumIsRight},
	{"An SCTP packet without a checksum stays without", sctpNoChecksumStays},
	{"A first SCTP fragment is not given a wrong checksum", sctpFirstFragment},
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c is the checksum of an SCTP packet, in which it counts as zero.
func crc32c(packet []byte) uint32 {
	b := bytes.Clone(packet)
	clear(b[8:12])
	return crc32.Checksum(b, castagnoli)
}

func sctpChecksumIsRight(t *testing.T, c cast) {
	if c.protocol != lb.SCTP {
		return
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 0xffff)))
	for size := range 3400 {
		if size > 300 && size%97 != 0 {
			continue
		}
		frame := c.packet(at(c.client, 40000), at(c.vip, 80), size).frame(t)
		frame = append(frame, make([]byte, max(0, 60-len(frame)))...) // as short frames are padded
		_, got := c.run(t, in, uplink, frame)
		v, ok := parse(got)
		if !ok || v.dst.Port() != 0xffff {
			t.Fatalf("%d bytes: it went to %s", size, v.dst)
		}
		sctp := got[v.l4 : v.l4+12+size]
		if has, want := binary.LittleEndian.Uint32(sctp[8:]), crc32c(sctp); has != want {
			t.Fatalf("%d bytes: checksum %08x, want %08x", size, has, want)
		}
	}
}

// sctpNoChecksumStays is for packets of which a device is still to compute the
// checksum, and for senders that go without (RFC 9653).
func sctpNoChecksumStays(t *testing.T, c cast) {
	if c.protocol != lb.SCTP {
		return
	}
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 100)
	p.noChecksum = true
	c.becomes(t, "the first packet", in, uplink, p, p.to(p.src, backend))
	a := p.to(p.src, backend).answer("", nil)
	c.becomes(t, "the answer", out, uplink, a, a.to(at(c.vip, 80), p.src))
}

// sctpFirstFragment has a checksum that depends on the length of a datagram of
// which nobody knows the end.
//
// The other stories of fragments are not told of SCTP, whose checksum changes.
func sctpFirstFragment(t *testing.T, c cast) {
	if c.protocol != lb.SCTP {
		return
	}
	for _, backend := range []netip.AddrPort{at(c.local, 80), at(c.local, 8080)} {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
		c.forget(t)
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 2900)
		first := cut(p, 77, 1000, 3)[0]
		c.untouched(t, "it begins nothing", in, uplink, first)
		c.becomes(t, "an association begins", in, uplink, p, p.to(p.src, backend))
		if backend.Port() == 80 {
			c.becomes(t, "to the same port", in, uplink, first, first.to(p.src, backend))
			c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 1})
			continue
		}
		c.refused(t, "to another one", in, uplink, first)
		c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 1, "drop fragment": 1})
	}
}
