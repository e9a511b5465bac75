package raw

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func spec(kind Kind, target, sources string) *Spec {
	return &Spec{Kind: kind, Target: netip.MustParseAddrPort(target), Sources: netip.MustParsePrefix(sources)}
}

func mustTemplate(tb testing.TB, s *Spec) *template {
	tb.Helper()
	t, err := newTemplate(s, macA, macB)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// Another implementation of the protocols reads every packet.
func TestEveryPacketIsValidAndFromTheSources(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range []*Spec{
		spec(SYN, "192.0.2.1:80", "10.1.0.0/16"), spec(SYN, "[2001:db8::1]:80", "fd00::/64"), spec(SYN, "192.0.2.1:80", "10.1.2.3/32"),
		spec(UDP, "192.0.2.1:9999", "10.1.2.0/25"), spec(UDP, "[2001:db8::1]:9999", "fd00::1:0/120"),
		{Kind: UDP, Target: netip.MustParseAddrPort("192.0.2.1:9999"), Sources: netip.MustParsePrefix("10.0.0.0/8"), Size: 1001},
	} {
		tmpl := mustTemplate(t, s)
		seen := make(map[string]bool)
		for range 500 {
			tmpl.vary(random.Uint32())
			p := gopacket.NewPacket(tmpl.frame, layers.LayerTypeEthernet, gopacket.Default)
			if p.ErrorLayer() != nil {
				t.Fatalf("%s to %s: %v", s.Kind, s.Target, p.ErrorLayer().Error())
			}
			_, mismatches := p.VerifyChecksums()
			if len(mismatches) > 0 {
				t.Fatalf("%s to %s: checksums %v", s.Kind, s.Target, mismatches)
			}
			flow := p.NetworkLayer().NetworkFlow()
			source, _ := netip.ParseAddr(flow.Src().String())
			if !s.Sources.Contains(source) || flow.Dst().String() != s.Target.Addr().String() {
				t.Fatalf("%s from %s to %s, want from %s to %s", s.Kind, source, flow.Dst(), s.Sources, s.Target)
			}
			seen[p.TransportLayer().TransportFlow().Src().String()+source.String()] = true
			if tcp, is := p.TransportLayer().(*layers.TCP); is && (!tcp.SYN || tcp.ACK || tcp.DstPort != 80) {
				t.Fatalf("no SYN to port 80: %+v", tcp)
			}
		}
		if len(seen) < 450 {
			t.Errorf("%s from %s: %d different sources in 500 packets", s.Kind, s.Sources, len(seen))
		}
		if s.Size > 0 && len(tmpl.frame) != s.Size {
			t.Errorf("%d bytes, want %d", len(tmpl.frame), s.Size)
		}
	}
}

func TestFragmentsAreFragments(t *testing.T) {
	numbers := make(map[uint32]bool)
	for _, kind := range []Kind{FirstFragments, LaterFragments} {
		for _, s := range []*Spec{spec(kind, "192.0.2.1:9999", "10.1.0.0/16"), spec(kind, "[2001:db8::1]:9999", "fd00::/64")} {
			tmpl := mustTemplate(t, s)
			for i := range 50 {
				tmpl.vary(rand.Uint32())
				p := gopacket.NewPacket(tmpl.frame, layers.LayerTypeEthernet, gopacket.Default)
				var offset uint16
				var more bool
				var number uint32
				if ip, is := p.NetworkLayer().(*layers.IPv4); is {
					offset, more, number = ip.FragOffset, ip.Flags&layers.IPv4MoreFragments != 0, uint32(ip.Id)
					if sum := add(0, tmpl.frame[ethernet:ethernet+ipv4Header]); sum != 0xffff {
						t.Fatalf("packet %d: the header sums up to %#x", i, sum)
					}
				} else {
					f := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
					offset, more, number = f.FragmentOffset, f.MoreFragments, f.Identification
				}
				numbers[number] = true
				if first := kind == FirstFragments; first != (offset == 0) || first != more {
					t.Fatalf("%s to %s: offset %d, more %t", kind, s.Target, offset, more)
				}
			}
		}
	}
	if len(numbers) < 150 {
		t.Errorf("%d different datagrams in 200 fragments", len(numbers))
	}
}

func TestFamiliesMustAgree(t *testing.T) {
	if _, err := newTemplate(spec(SYN, "192.0.2.1:80", "fd00::/64"), macA, macB); err == nil {
		t.Error("IPv6 sources for an IPv4 target are taken")
	}
}
