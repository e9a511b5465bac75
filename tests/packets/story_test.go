package packets

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// book is who takes part in a story, in one family.
type book struct {
	client, other   netip.Addr // outside
	router          netip.Addr // on the way
	node, tunnel    netip.Addr // of the node, on its devices
	vip, vip2       netip.Addr // of Services
	cluster         netip.Addr // ClusterIP
	local, remote   netip.Addr // pods, on the node and on another one
	local2, remote2 netip.Addr
	services        netip.Prefix
}

func newBook(client, other, router, node, tunnel, vip, vip2, cluster, local, remote, local2, remote2, services string) book {
	a := netip.MustParseAddr
	return book{
		a(client), a(other), a(router), a(node), a(tunnel), a(vip), a(vip2), a(cluster),
		a(local), a(remote), a(local2), a(remote2), netip.MustParsePrefix(services),
	}
}

var (
	v4 = newBook("198.51.100.7", "198.51.100.8", "198.51.100.1", "192.0.2.1", "10.244.1.1", "203.0.113.10", "203.0.113.11", "10.96.0.10",
		"10.244.1.10", "10.244.2.20", "10.244.1.11", "10.244.2.21", "10.96.0.0/16")
	v6 = newBook("2001:db8:c::7", "2001:db8:c::8", "2001:db8:c::1", "2001:db8::1", "fd00:10:244:1::1", "2001:db8:f::10", "2001:db8:f::11", "fd00:10:96::10",
		"fd00:10:244:1::10", "fd00:10:244:2::20", "fd00:10:244:1::11", "fd00:10:244:2::21", "fd00:10:96::/112")
)

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// cast is a book with a protocol: a story is told once for each.
type cast struct {
	book
	*rig
	protocol lb.Protocol
}

// story is what becomes of some packets, one after the other.
type story struct {
	name string
	tell func(t *testing.T, c cast)
}

// TestPackets tells every story for each family and protocol, each with maps
// that know no flow and no Service.
func TestPackets(t *testing.T) {
	r := newRig(t)
	for _, s := range slices.Concat(flowStories, martianStories, refuseStories, icmpStories, headerStories, sctpStories, fragmentStories, podStories, resetStories, stateStories, balancingStories, handOverStories, xdpStories, healthStories, formerStories) {
		t.Run(s.name, func(t *testing.T) {
			for _, b := range []book{v4, v6} {
				for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
					t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
						compare := r.tracesRefusals(t)
						r.tell(t, s, cast{b, r, protocol})
						compare()
					})
				}
			}
		})
	}
	for _, where := range []string{"in " + uplink, "out " + tunnel, "in " + podEnd} {
		if r.toldAt[where] == 0 {
			t.Errorf("no packet was refused %s: that is not tested", where)
		}
	}
}

func (r *rig) tell(t *testing.T, s story, c cast) {
	r.forget(t)
	r.counted = r.counters(t)
	defer func() {
		for _, s := range r.planner.Services() {
			r.set(t, s.Name)
		}
		r.apply(t, r.planner.Sweep())
	}()
	s.tell(t, c)
}

func (b book) family() string {
	if b.client.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// frontend stands at an address; backends are written as their AddrPorts.
func (c cast) frontend(kind lb.FrontendKind, at netip.AddrPort, backends ...netip.AddrPort) lb.Frontend {
	f := lb.Frontend{AddrPort: lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: c.protocol}, Kind: kind}
	for _, b := range backends {
		f.Members = append(f.Members, lb.AddrPort{Addr: b.Addr(), Port: b.Port(), Protocol: c.protocol})
	}
	f.Views[lb.Internal].Backends, f.Views[lb.External].Backends = f.Members, f.Members
	return f
}

// packet is one from the client of the story with so many bytes.
func (c cast) packet(src, dst netip.AddrPort, size int) packet {
	return packet{src: src, dst: dst, protocol: c.protocol, flags: "S", payload: []byte(strings.Repeat("x", size))}
}

// becomes gives a packet to a program and compares what comes out.
func (r *rig) becomes(tb testing.TB, what string, h hook, device string, p, want packet) {
	tb.Helper()
	r.framesBecome(tb, what, h, device, p.frame(tb), want.frame(tb))
}

// framesBecome does so with frames, of which the device has summed up every other one.
func (r *rig) framesBecome(tb testing.TB, what string, h hook, device string, frame, want []byte) {
	tb.Helper()
	flags := uint32(0)
	if r.compared++; r.sums && r.compared%2 == 0 {
		flags = sumUp
	}
	got, err := r.tryAs(h, device, frame, flags)
	if err != nil {
		tb.Fatalf("%s: run %s with %d bytes, flags %d: %v", what, h, len(frame), flags, err)
	}
	if got.verdict != pass || !bytes.Equal(got.frame, want) {
		tb.Fatalf("%s: %s on %s: verdict %d\ngiven %s\ngot   %s\nwant  %s", what, h, device, got.verdict, dump(frame), dump(got.frame), dump(want))
	}
}

// untouched says that a program lets a packet alone.
func (r *rig) untouched(tb testing.TB, what string, h hook, device string, p packet) {
	tb.Helper()
	r.becomes(tb, what, h, device, p, p)
}

// refused says that a program drops a packet.
func (r *rig) refused(tb testing.TB, what string, h hook, device string, p packet) {
	tb.Helper()
	if verdict, got := r.run(tb, h, device, p.frame(tb)); verdict != drop {
		tb.Fatalf("%s: %s on %s: verdict %d, want %d, for %s", what, h, device, verdict, drop, dump(got))
	}
}

// comesOut gives a packet to a program and returns where it goes now, for when
// the program may choose. The rest of it must be as it should.
func (r *rig) comesOut(tb testing.TB, what string, h hook, device string, p packet) packet {
	tb.Helper()
	verdict, got := r.run(tb, h, device, p.frame(tb))
	src, dst, ok := ends(got)
	if verdict != pass || !ok {
		tb.Fatalf("%s: verdict %d for %s", what, verdict, dump(got))
	}
	want := p.to(src, dst)
	if !bytes.Equal(got, want.frame(tb)) {
		tb.Fatalf("%s: got %s\nwant %s", what, dump(got), dump(want.frame(tb)))
	}
	return want
}

// ends reads the addresses and ports of a frame without options, extension
// headers or fragments.
func ends(frame []byte) (src, dst netip.AddrPort, ok bool) {
	v, ok := parse(frame)
	if !ok {
		return src, dst, false
	}
	return v.src, v.dst, true
}

func describe(p packet) string {
	return fmt.Sprintf("%s %s → %s %s", p.protocol, p.src, p.dst, p.flags)
}

var v4Unspecified, v6Unspecified = netip.IPv4Unspecified(), netip.IPv6Unspecified()

func loopback(b book, port uint16) netip.AddrPort {
	if b.client.Is4() {
		return at(netip.MustParseAddr("127.0.0.1"), port)
	}
	return at(netip.IPv6Loopback(), port)
}
