package netns_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// TestSourceRangesJudgeABoundSocketByItsAddress has a node with two addresses, of which a Service wants one. kube-proxy sees
// the source of the packet, which is the address that a socket is bound to. Datagrams may be sent with another one: the
// first address decides.
func TestSourceRangesJudgeABoundSocketByItsAddress(t *testing.T) {
	n := mustNode(t)
	for _, tc := range []struct {
		name, protocol string
		typ            int
		ask            func(*socket, netip.AddrPort) error
	}{
		{"TCP connect", "/TCP", unix.SOCK_STREAM, (*socket).connect},
		{"UDP connect", "/UDP", unix.SOCK_DGRAM, (*socket).connect},
		{"UDP sendto", "/UDP", unix.SOCK_DGRAM, func(s *socket, to netip.AddrPort) error { return s.sendTo(to, "who") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k kind) {
				n := n.anew(t)
				routed, second := k.pick("10.7.0.1", "fd00:7::1"), k.pick("10.7.0.2", "fd00:7::2")
				for _, a := range []string{routed, second} {
					testenv.AddAddress(t, a)
				}
				device := plan.Device{IP4: netip.MustParseAddr("10.7.0.1"), IP6: netip.MustParseAddr("fd00:7::1")}
				if err := n.dp.SetDevices([]plan.Device{device}); err != nil {
					t.Fatal(err)
				}
				b := mustServe(t, k.pick("10.7.0.2:7001", "[fd00:7::2]:7001")+tc.protocol)
				vip := k.pick("203.0.113.70:80", "[2001:db8:7::70]:80")
				for _, allowed := range []string{routed, second} {
					f := frontend(vip+tc.protocol, b)
					a := netip.MustParseAddr(allowed)
					f.SourceRanges = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
					n.set("web", f)
					for _, own := range []string{"", routed, second} {
						s := mustSocket(t, k, tc.typ)
						if own != "" {
							if err := unix.Bind(s.fd, s.sockaddr(k.of(netip.AddrPortFrom(netip.MustParseAddr(own), 0)))); err != nil {
								t.Fatal(err)
							}
						}
						err := tc.ask(s, k.of(at(vip)))
						judged := own
						if own == "" || tc.typ == unix.SOCK_DGRAM {
							judged = routed
						}
						if may := judged == allowed; may != (err == nil) {
							t.Errorf("a socket bound to %q, where %s may: %v", own, allowed, err)
						}
					}
				}
			})
		})
	}
}
