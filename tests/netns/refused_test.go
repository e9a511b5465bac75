package netns_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// attempt is a way to ask for a Service.
type attempt struct {
	name     string
	protocol string
	try      func(tb testing.TB, k kind, to netip.AddrPort) error
}

// udpConnect sends nothing.
var udpConnect = attempt{"UDP connect", "/UDP", func(tb testing.TB, k kind, to netip.AddrPort) error {
	return mustSocket(tb, k, unix.SOCK_DGRAM).connect(to)
}}

// sendings are those that send something.
var sendings = []attempt{
	{"TCP connect", "/TCP", func(tb testing.TB, k kind, to netip.AddrPort) error {
		return mustSocket(tb, k, unix.SOCK_STREAM).connect(to)
	}},
	{"UDP sendto", "/UDP", func(tb testing.TB, k kind, to netip.AddrPort) error {
		return mustSocket(tb, k, unix.SOCK_DGRAM).sendTo(to, "who")
	}},
	{"UDP sendmsg", "/UDP", func(tb testing.TB, k kind, to netip.AddrPort) error {
		return mustSocket(tb, k, unix.SOCK_DGRAM).sendMsg(to, "who")
	}},
}

// forEachAttempt runs f for each way to ask and each kind of socket.
func forEachAttempt(t *testing.T, f func(t *testing.T, k kind, n *node, protocol string, try func(netip.AddrPort) error)) {
	forEachOf(t, append([]attempt{udpConnect}, sendings...), f)
}

func forEachOf(t *testing.T, attempts []attempt, f func(t *testing.T, k kind, n *node, protocol string, try func(netip.AddrPort) error)) {
	n := mustNode(t)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k kind) {
				f(t, k, n.anew(t), a.protocol, func(to netip.AddrPort) error { return a.try(t, k, to) })
			})
		})
	}
}

// wantRefused checks that what was tried was refused at once, for a reason
// that is counted for Service web and for the node.
func (n *node) wantRefused(err error, reason string) {
	n.tb.Helper()
	if !errors.Is(err, unix.ECONNREFUSED) {
		n.tb.Errorf("the error is %v, want ECONNREFUSED", err)
	}
	if got := n.drops("web"); got[reason] != 1 || len(got) != 1 {
		n.tb.Errorf("of the Service %v are counted, want one %s", got, reason)
	}
	n.wantNodeDrop(reason)
}

// wantNodeDrop checks that one connection is counted for a reason, and none
// for the others.
func (n *node) wantNodeDrop(reason string) {
	n.tb.Helper()
	for name, got := range n.status().Drops {
		want := uint64(0)
		if name == reason {
			want = 1
		}
		if got -= n.dropped[name]; got != want {
			n.tb.Errorf("of the node %d of %s are counted, want %d", got, name, want)
		}
	}
}

func TestAServiceWithoutEndpointsRefuses(t *testing.T) {
	forEachAttempt(t, func(_ *testing.T, k kind, n *node, protocol string, try func(netip.AddrPort) error) {
		vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80")
		n.set("web", frontend(vip+protocol))
		n.wantRefused(try(at(vip)), "no_endpoint")
	})
}

func TestAServiceWithPolicyLocalAndNoLocalEndpointRefuses(t *testing.T) {
	forEachAttempt(t, func(_ *testing.T, k kind, n *node, protocol string, try func(netip.AddrPort) error) {
		vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80")
		f := frontend(vip + protocol)
		f.Views[lb.Internal].NoLocal = true
		n.set("web", f)
		n.wantRefused(try(at(vip)), "no_local_endpoint")
	})
}

func TestAPortThatNobodyServesOfAClusterIPRefuses(t *testing.T) {
	forEachOf(t, sendings, func(_ *testing.T, k kind, n *node, protocol string, try func(netip.AddrPort) error) {
		vip := k.pick("10.96.0.1", "[fd00:96::1]")
		n.set("web", frontend(vip+":80"+protocol))
		if err := try(at(vip + ":81")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the error is %v, want ECONNREFUSED", err)
		}
		if got := n.drops("web"); len(got) != 0 {
			t.Errorf("of the Service %v are counted, want nothing", got)
		}
		n.wantNodeDrop("no_service_port")
	})
}

// getaddrinfo orders addresses, and ping and traceroute begin, with a connect() of a
// UDP socket that never sends: to a port of a ClusterIP that only TCP has, or that
// nobody has, or to an address that is no Service's yet.
func TestAUDPConnectToAnUnservedPortTellsTheSourceAddress(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		vip, none := k.pick("10.96.0.1", "fd00:96::1"), k.pick("10.96.0.77", "fd00:96::77")
		n.setServiceCIDRs()
		b := udpBackend(t, k, 1)
		n.set("web", frontend(netip.AddrPortFrom(netip.MustParseAddr(vip), 80).String()+"/TCP"))
		n.set("dns", frontend(netip.AddrPortFrom(netip.MustParseAddr(vip), 53).String()+"/UDP", b))
		pod := mustPod(t, k)
		for _, to := range []netip.AddrPort{
			netip.AddrPortFrom(netip.MustParseAddr(vip), 80), netip.AddrPortFrom(netip.MustParseAddr(vip), 33434), netip.AddrPortFrom(netip.MustParseAddr(none), 80),
		} {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(netip.AddrPortFrom(netip.MustParseAddr(vip), 53)) // it had an entry
			s.mustConnect(to)
			s.wantPeer(to, "connected")
			if got := s.local().Addr().Unmap(); got != pod {
				t.Errorf("a socket that is connected to %s has address %s, want %s", to, got, pod)
			}
			if got := n.allInFlight(); got != 0 {
				t.Errorf("of a socket that is connected to %s %d are in flight, want none", to, got)
			}
			s.close()
			if err := mustSocket(t, k, unix.SOCK_STREAM).connect(netip.AddrPortFrom(to.Addr(), 81)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("TCP to %s: %v, want ECONNREFUSED", to, err)
			}
		}
		if got := n.allInFlight(); got != 0 {
			t.Errorf("%d are in flight, want none", got)
		}
		drops := n.status().Drops
		if got := drops["no_service_port"] + drops["no_service"]; got != 3 {
			t.Errorf("%d drops are counted, want the 3 of TCP", got)
		}
	})
}

// mustPod enters a network namespace whose packets leave with one address, which it
// returns.
func mustPod(t *testing.T, k kind) netip.Addr {
	t.Helper()
	testenv.EnterNetns(t)
	pod := netip.MustParseAddr(k.pick("10.244.9.9", "fd00:244::9:9"))
	testenv.AddAddress(t, pod.String())
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if pod.Is6() {
		everywhere = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere, Src: pod.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestARefusedReconnectLeavesAUDPSocketWhereItWas(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, b, vip, empty := mustNode(t), udpBackend(t, k, 1), udpVIP(k, 1), udpVIP(k, 2)
		n.set("dns", frontend(vip, b))
		n.set("web", frontend(empty))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.wantRefused(s.connect(at(empty)), "no_endpoint")
		s.wantPeer(at(vip), "refused elsewhere")
	})
}

// The address of the Service is one of this machine here, so that something
// answers where nothing is balanced.
func TestAPingOfAClusterIPIsLeftAlone(t *testing.T) {
	// Ping sockets are for groups that are listed, and in a new namespace none is.
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		k        kind
		protocol int
		request  []byte
		answer   byte // ICMP type
	}{
		{inet, unix.IPPROTO_ICMP, []byte{8, 0, 0, 0, 0, 0, 0, 1}, 0},
		{inet6, unix.IPPROTO_ICMPV6, []byte{128, 0, 0, 0, 0, 0, 0, 1}, 129},
	} {
		t.Run(c.k.name, func(t *testing.T) {
			vip := c.k.pick("10.96.0.1", "fd00:96::1")
			testenv.AddAddress(t, vip)
			n := mustNode(t)
			to := netip.AddrPortFrom(netip.MustParseAddr(vip), 0)
			n.set("web", frontend(netip.AddrPortFrom(to.Addr(), 80).String()+"/UDP"))
			s := mustSocketOf(t, c.k, unix.SOCK_DGRAM, c.protocol)
			ping := func(how string, send func() error) {
				t.Helper()
				if err := send(); err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if text, from := s.receive(); text[0] != c.answer || from.Addr() != to.Addr() {
					t.Errorf("%s: type %d from %s, want type %d from %s", how, text[0], from, c.answer, to)
				}
			}
			ping("sendto", func() error { return s.sendTo(to, string(c.request)) })
			s.mustConnect(to)
			ping("connected", func() error { s.send(string(c.request)); return nil })
			n.wantNodeDrop("")
		})
	}
}
