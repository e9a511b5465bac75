package packet_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/packet"
)

// Whoever reads packets finds in them what was asked for, and sums as it would have written them.
func TestPacketsAreWhatOthersRead(t *testing.T) {
	for _, at := range [][2]string{{"198.51.100.7:40000", "203.0.113.10:80"}, {"[2001:db8::7]:40000", "[2001:db8::10]:80"}} {
		from, to := netip.MustParseAddrPort(at[0]), netip.MustParseAddrPort(at[1])
		for name, b := range map[string][]byte{
			"a SYN": packet.First(lb.TCP, from, to), "a datagram": packet.First(lb.UDP, from, to), "data": packet.Datagram(from, to, []byte("odd")), "a reset": packet.TCP(from, to, packet.RST, 1<<31+7),
		} {
			network := gopacket.LayerType(layers.LayerTypeIPv6)
			if from.Addr().Is4() {
				network = layers.LayerTypeIPv4
			}
			p := gopacket.NewPacket(b, network, gopacket.Default)
			if p.ErrorLayer() != nil || p.NetworkLayer() == nil || p.TransportLayer() == nil {
				t.Fatalf("%s from %v: %v", name, from, p)
			}
			src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
			if src.String() != from.Addr().String() || dst.String() != to.Addr().String() {
				t.Errorf("%s from %v goes from %v to %v", name, from, src, dst)
			}
			if again := rewritten(t, p); string(again) != string(b) {
				t.Errorf("%s from %v is % x, others would write % x", name, from, b, again)
			}
			if tcp, ok := p.TransportLayer().(*layers.TCP); ok && (tcp.SYN != (name == "a SYN") || tcp.RST != (name == "a reset") || tcp.RST != (tcp.Seq == 1<<31+7)) {
				t.Errorf("%s from %v is %+v", name, from, tcp)
			}
		}
	}
}

// rewritten writes a packet anew, with its lengths and sums.
func rewritten(t *testing.T, p gopacket.Packet) []byte {
	t.Helper()
	for _, l := range p.Layers() {
		if l, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := l.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializePacket(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, p); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
