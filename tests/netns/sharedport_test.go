package netns_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// forEachWayToShare has the options by which sockets share a port.
func forEachWayToShare(t *testing.T, f func(t *testing.T, option int)) {
	for name, option := range map[string]int{"SO_REUSEADDR": unix.SO_REUSEADDR, "SO_REUSEPORT": unix.SO_REUSEPORT} {
		t.Run(name, func(t *testing.T) { f(t, option) })
	}
}

// mustShare makes a UDP socket that shares its port.
func mustShare(t *testing.T, k kind, option int, own netip.AddrPort) *socket {
	t.Helper()
	s := mustSocket(t, k, unix.SOCK_DGRAM)
	err := errors.Join(unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, option, 1), unix.Bind(s.fd, s.sockaddr(own)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustShareOne makes two sockets with one port, of no address yet.
func mustShareOne(t *testing.T, k kind, option int) (one, two *socket) {
	t.Helper()
	unspecified := netip.IPv4Unspecified()
	if k.family == unix.AF_INET6 {
		unspecified = netip.IPv6Unspecified()
	}
	one = mustShare(t, k, option, netip.AddrPortFrom(unspecified, 0))
	return one, mustShare(t, k, option, netip.AddrPortFrom(unspecified, one.local().Port()))
}

// askPeer sends to the peer of a socket and returns who answers there.
func (s *socket) askPeer(peer netip.AddrPort) string {
	s.tb.Helper()
	s.send("who")
	who, from := s.receive()
	if from != s.kind.of(peer) {
		s.tb.Errorf("asked %s, %q answers from %s", peer, who, from)
	}
	return who
}

// wantTaken says that a socket cannot have a peer that another one has.
func (s *socket) wantTaken(to netip.AddrPort) {
	s.tb.Helper()
	if err := s.connect(to); !errors.Is(err, unix.EADDRNOTAVAIL) {
		s.tb.Errorf("connect to %s: %v, want %v", to, err, unix.EADDRNOTAVAIL)
	}
}

// wantApart connects pairs of sockets with one port to two peers: each has answers of its own.
func wantApart(t *testing.T, k kind, option int, first, second netip.AddrPort) {
	t.Helper()
	for range 10 {
		one, two := mustShareOne(t, k, option)
		one.mustConnect(first)
		two.mustConnect(second)
		if a, b := one.local(), two.local(); a.Port() != b.Port() {
			t.Fatalf("the sockets have the ports %d and %d, want one", a.Port(), b.Port())
		}
		one.send("who")
		two.send("who")
		a, fromA := one.receive()
		b, fromB := two.receive()
		if a == b || fromA != k.of(first) || fromB != k.of(second) {
			t.Errorf("%q answers from %s and %q from %s, want two backends, from %s and %s", a, fromA, b, fromB, first, second)
		}
		one.close()
		two.close()
	}
}

// wantOneOnly connects pairs of sockets with one port to two peers that have one backend: the second one hears that it has none.
func wantOneOnly(t *testing.T, n *node, k kind, option int, first, second netip.AddrPort) {
	t.Helper()
	one, two := mustShareOne(t, k, option)
	one.mustConnect(first)
	inFlight := n.allInFlight()
	two.wantTaken(second)
	if peer, err := two.peer(); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("the second socket has the peer %v (%v), want none", peer, err)
	}
	if got := n.allInFlight(); got != inFlight {
		t.Errorf("%d are in flight, want the %d of the first socket", got, inFlight)
	}
	one.askPeer(first)
	one.close()
	two.mustConnect(second)
	two.askPeer(second)
}

func TestConnectedSocketsOfOnePortGetBackendsOfTheirOwn(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, b := udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.set("one", frontend(udpVIP(k, 1), a, b))
		n.set("two", frontend(udpVIP(k, 2), a, b))
		n.set("three", frontend(udpVIP(k, 3), a))
		forEachWayToShare(t, func(t *testing.T, option int) {
			for name, peers := range map[string][2]netip.AddrPort{
				"two Services":             {at(udpVIP(k, 1)), at(udpVIP(k, 2))},
				"one Service":              {at(udpVIP(k, 1)), at(udpVIP(k, 1))},
				"a Service of one backend": {at(udpVIP(k, 3)), at(udpVIP(k, 1))},
				"a pod and a Service":      {a.addr(), at(udpVIP(k, 1))},
			} {
				t.Run(name, func(t *testing.T) { wantApart(t, k, option, peers[0], peers[1]) })
			}
		})
	})
}

func TestConnectedSocketsOfOnePortDoNotShareABackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b := udpBackend(t, k, 1)
		n.set("one", frontend(udpVIP(k, 1), b))
		n.set("two", frontend(udpVIP(k, 2), b))
		forEachWayToShare(t, func(t *testing.T, option int) {
			for name, peers := range map[string][2]netip.AddrPort{
				"two Services":        {at(udpVIP(k, 1)), at(udpVIP(k, 2))},
				"a pod and a Service": {b.addr(), at(udpVIP(k, 1))},
				"a Service and a pod": {at(udpVIP(k, 1)), b.addr()},
			} {
				t.Run(name, func(t *testing.T) { wantOneOnly(t, n, k, option, peers[0], peers[1]) })
			}
			one, two := mustShareOne(t, k, option)
			one.mustConnect(b.addr())
			two.mustConnect(b.addr()) // of no Service: as the kernel has it
		})
	})
}

// A client that has to get a certain backend gets no other.
func TestConnectedSocketsOfOnePortKeepTheBackendThatAHashChooses(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		all := []*backend{udpBackend(t, k, 1), udpBackend(t, k, 2), udpBackend(t, k, 3)}
		for name, change := range map[string]func(*lb.Frontend){
			"hash":             func(f *lb.Frontend) { f.Algorithm = lb.SH },
			"session affinity": func(f *lb.Frontend) { f.AffinityTimeout = 3600 },
		} {
			t.Run(name, func(t *testing.T) {
				f := frontend(udpVIP(k, 1), all...)
				change(&f)
				n.set("one", f)
				wantOneOnly(t, n, k, unix.SO_REUSEADDR, at(udpVIP(k, 1)), at(udpVIP(k, 1)))
			})
		}
	})
}

func TestASocketThatSharesItsPortMayConnectAgain(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b := udpBackend(t, k, 1)
		n.set("one", frontend(udpVIP(k, 1), b))
		n.set("two", frontend(udpVIP(k, 2), b))
		s, _ := mustShareOne(t, k, unix.SO_REUSEADDR)
		for range 2 {
			for _, to := range []netip.AddrPort{at(udpVIP(k, 1)), at(udpVIP(k, 1)), at(udpVIP(k, 2)), b.addr(), at(udpVIP(k, 1))} {
				s.mustConnect(to)
				s.askPeer(to)
			}
			s.disconnect()
		}
	})
}

// One whose second connect() is refused stays with the peer that it has.
func TestASocketOfATakenBackendKeepsItsPeer(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, b := udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.set("one", frontend(udpVIP(k, 1), a))
		n.set("two", frontend(udpVIP(k, 2), b))
		own := k.pick("10.7.0.1", "fd00:7::1")
		testenv.AddAddress(t, own)
		bound := k.of(netip.AddrPortFrom(netip.MustParseAddr(own), 40055))
		one, two := mustShare(t, k, unix.SO_REUSEPORT, bound), mustShare(t, k, unix.SO_REUSEPORT, bound)
		one.mustConnect(at(udpVIP(k, 1)))
		two.mustConnect(at(udpVIP(k, 2)))
		for _, to := range []netip.AddrPort{at(udpVIP(k, 1)), a.addr()} {
			two.wantTaken(to)
			two.wantPeer(at(udpVIP(k, 2)), "refused elsewhere")
			if who := two.askPeer(at(udpVIP(k, 2))); who != b.name() {
				t.Errorf("%q answers, want %q", who, b.name())
			}
		}
	})
}

func TestATraceTellsThatAnotherSocketHasTheBackend(t *testing.T) {
	n, b, vip := mustNode(t), udpBackend(t, inet, 1), udpVIP(inet, 1)
	n.set("one", frontend(vip, b))
	n.inspect(func(r *datapath.Reader) error {
		tracer, err := r.NewTracer()
		if err != nil {
			return err
		}
		defer tracer.Close()
		one, two := mustShareOne(t, inet, unix.SO_REUSEADDR)
		one.mustConnect(at(vip))
		two.wantTaken(at(vip))
		for _, taken := range []bool{false, true} {
			told, ok, err := tracer.Read(time.Now().Add(20 * time.Second))
			if err != nil || !ok || told.Asked != mustAddrPort(vip) || told.Refused != taken || told.Taken != taken {
				t.Errorf("told is %+v, %v, %v; want %s, taken: %t", told, ok, err, vip, taken)
			}
		}
		return nil
	})
}

// Sockets with ports, or addresses, of their own are no others' concern.
func TestSocketsThatShareNoPortShareABackend(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, b, vip := mustNode(t), udpBackend(t, k, 1), at(udpVIP(k, 1))
		n.set("one", frontend(udpVIP(k, 1), b))
		for range 3 {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(vip)
			s.askPeer(vip)
		}
		for _, own := range []string{k.pick("10.7.0.1", "fd00:7::1"), k.pick("10.7.0.2", "fd00:7::2")} {
			testenv.AddAddress(t, own)
			s := mustShare(t, k, unix.SO_REUSEADDR, k.of(netip.AddrPortFrom(netip.MustParseAddr(own), 40054)))
			s.mustConnect(vip)
			s.askPeer(vip)
		}
		own := k.of(netip.AddrPortFrom(netip.MustParseAddr(k.pick("10.7.0.2", "fd00:7::2")), 40054))
		mustShare(t, k, unix.SO_REUSEADDR, own).wantTaken(vip)
	})
}

// Packets to another machine have the address of their device, which is not the first one.
func TestConnectedSocketsOfOnePortAreFoundAtTheAddressOfTheirRoute(t *testing.T) {
	for name, enter := range map[string]func(testing.TB){"on the node": func(testing.TB) {}, "in a pod": testenv.EnterNetns} {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k kind) {
				n := mustNode(t)
				enter(t)
				beside(t, "apart0", "10.8.0.%d/24", "fd00:8::%d/64")
				machine := beside(t, "there0", "10.9.0.%d/24", "fd00:9::%d/64")
				var all []*backend
				for _, text := range []string{k.pick("10.9.0.2:7001/UDP", "[fd00:9::2]:7001/UDP"), k.pick("10.9.0.2:7002/UDP", "[fd00:9::2]:7002/UDP")} {
					all = append(all, mustServeAt(t, machine, text))
				}
				n.set("one", frontend(udpVIP(k, 1), all...))
				n.set("two", frontend(udpVIP(k, 2), all[0]))
				n.set("three", frontend(udpVIP(k, 3), all[0]))
				wantApart(t, k, unix.SO_REUSEADDR, at(udpVIP(k, 2)), at(udpVIP(k, 1)))
				wantOneOnly(t, n, k, unix.SO_REUSEADDR, at(udpVIP(k, 2)), at(udpVIP(k, 3)))
				wantOneOnly(t, n, k, unix.SO_REUSEADDR, at(udpVIP(k, 2)), all[0].addr())
			})
		})
	}
}

// beside makes a machine beside the network namespace of this thread until the test ends, on a network of each family, whose
// first address this side has.
func beside(tb testing.TB, device string, networks ...string) *traffic.Namespace {
	tb.Helper()
	machine := testenv.Beside(tb, "hg-"+device, device)
	err := errors.Join(plug(device, 1, networks), machine.Do(func() error { return plug("eth0", 2, networks) }))
	if err != nil {
		tb.Fatal(err)
	}
	return machine
}

// plug gives a device an address of each network and sets it up.
func plug(device string, host int, networks []string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, network := range networks {
		a, err := netlink.ParseAddr(fmt.Sprintf(network, host))
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// mustServeAt starts a backend on another machine.
func mustServeAt(tb testing.TB, machine *traffic.Namespace, at string) *backend {
	tb.Helper()
	b := &backend{at: mustAddrPort(at), hold: make(chan struct{})}
	var c *net.UDPConn
	err := machine.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(b.addr()))
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	go b.answer(c)
	return b
}
