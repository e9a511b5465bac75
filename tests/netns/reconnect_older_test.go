package netns_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// earlyAddresses are a load-balancer IP and a ClusterIP, where no service CIDR has them.
func earlyAddresses(k kind) map[string]string {
	return map[string]string{
		"a load-balancer IP":         k.pick("203.0.113.9:53/UDP", "[2001:db8:9::9]:53/UDP"),
		"a ClusterIP without a CIDR": udpVIP(k, 1),
	}
}

// routeAll gives all addresses a route. Packets there are lost.
func routeAll(tb testing.TB) {
	tb.Helper()
	routeTo(tb, "0.0.0.0/0", "::/0")
}

// A socket that connected to an address before that was one of a Service is served as soon as there is a backend.
func TestAUDPSocketOlderThanItsAddressGetsABackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeAll(t)
		a, b := udpBackend(t, k, 1), udpBackend(t, k, 2)
		for name, vip := range earlyAddresses(k) {
			peer := at(vip)
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(peer)
			own, inFlight := s.local(), n.allInFlight()
			s.send("lost")
			n.change("one", knowing(vip))
			s.wantPeer(peer, name+": no backend is there")
			n.change("one", knowing(vip, a))
			s.wantAnswerOf(a, peer, name+": a backend has come")
			if got := n.allInFlight(); got != inFlight+1 {
				t.Errorf("%s: %d are in flight, want %d", name, got, inFlight+1)
			}
			n.change("one", knowing(vip, b))
			s.wantAnswerOf(b, peer, name+": the backend has left")
			n.change("one")
			s.wantPeer(peer, name+": the Service is gone")
			n.change("one", knowing(vip, a))
			s.wantAnswerOf(a, peer, name+": the Service is there again")
			if s.local() != own {
				t.Errorf("%s: the socket has %v, had %v", name, s.local(), own)
			}
			s.close()
			n.change("one")
		}
	})
}

func TestAUDPSocketOlderThanItsNodePortGetsABackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		testenv.AddAddress(t, k.pick("192.0.2.1", "2001:db8::1"))
		n.setAddresses(nodeAddresses)
		b := udpBackend(t, k, 1)
		for _, text := range []string{k.pick("192.0.2.1:30053", "[2001:db8::1]:30053"), k.pick("127.0.0.1:30053", "[::1]:30053")} {
			peer := at(text)
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(peer)
			n.change("port", knowing(k.pick("0.0.0.0:30053/UDP", "[::]:30053/UDP"), b))
			s.wantAnswerOf(b, peer, text)
			n.change("port")
		}
	})
}

// wantUntouched changes a Service and says that a socket older than it stays as it is, at its peer.
func (n *node) wantUntouched(s *socket, peer netip.AddrPort, f lb.Frontend, when string) {
	n.tb.Helper()
	before, entries := n.status(), n.socketEntries()
	n.tellFromOutside("one", f)
	n.tellFromOutside("other", knowing(udpVIP(s.kind, 9), &backend{at: f.Views[lb.Internal].Backends[0]})) // each pass leaves it
	if s.ended() {
		n.tb.Errorf("%s: the socket was told", when)
	}
	s.wantPeer(peer, when)
	after := n.status()
	for _, counter := range []string{"socket_reconnected", "socket_destroyed", "socket_entry_stored"} {
		if _, known := after.Counters[counter]; !known || after.Counters[counter] != before.Counters[counter] {
			n.tb.Errorf("%s: %s: %d, was %d", when, counter, after.Counters[counter], before.Counters[counter])
		}
	}
	for reason, count := range after.Drops {
		if count != before.Drops[reason] {
			n.tb.Errorf("%s: %d are refused (%s), were %d", when, count, reason, before.Drops[reason])
		}
	}
	if got := n.socketEntries(); got != entries {
		n.tb.Errorf("%s: %d entries, were %d", when, got, entries)
	}
	if got := n.allInFlight(); got != 0 {
		n.tb.Errorf("%s: %d are in flight, want 0", when, got)
	}
}

func TestAUDPSocketOlderThanAServiceThatIsNotForItStaysAsItIs(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		testenv.EnterNetns(t)
		keepNamespace(t)
		beside(t, "there0", "10.7.0.%d/24", "fd00:7::%d/64")
		routeAll(t)
		b := udpBackend(t, k, 1)
		vip := k.pick("10.7.0.77:53/UDP", "[fd00:7::77]:53/UDP")
		closing, denying := knowing(vip, b), knowing(vip, b)
		closing.CloseUDP = true
		denying.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}
		for name, f := range map[string]lb.Frontend{"udp-close": closing, "source ranges": denying} {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(at(vip))
			n.wantUntouched(s, at(vip), f, name)
			if err := s.connect(reconnectAddress(k)); !errors.Is(err, unix.ECONNREFUSED) { // named before the Service was so
				t.Errorf("%s: the programs say %v, want %v", name, err, unix.ECONNREFUSED)
			}
			s.close()
			n.tellFromOutside("one")
		}
		n.setAddresses(nodeAddresses)
		s, peer := mustSocket(t, k, unix.SOCK_DGRAM), at(k.pick("127.0.0.1:30053", "[::1]:30053"))
		s.mustConnect(peer)
		n.wantUntouched(s, peer, knowing(k.pick("0.0.0.0:30053/UDP", "[::]:30053/UDP"), b), "a NodePort, at another loopback device")
	})
}

// Its packets may have a backend already.
func TestAnOlderUDPSocketOfAPodWhosePacketsAreBalancedStaysAsItIs(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustPodNode(t)
		routeAll(t)
		b, vip := udpBackend(t, k, 1), udpVIP(k, 1)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.wantUntouched(s, at(vip), knowing(vip, b), "a backend has come")
	})
}

func TestAnOlderUDPSocketOfTheNodeBesidePodsGetsABackend(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		cfg := config(t)
		cfg.Pods = true
		n := mustNodeOf(t, cfg)
		routeAll(t)
		b, vip := udpBackend(t, k, 1), udpVIP(k, 1)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.change("one", knowing(vip, b))
		s.wantAnswerOf(b, at(vip), "a backend has come")
	})
}

// cgroupBelow makes a cgroup in which the test is not.
func cgroupBelow(tb testing.TB) string {
	tb.Helper()
	below := filepath.Join(testenv.Cgroup(tb), "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.Remove(below); err != nil {
			tb.Error(err)
		}
	})
	return below
}

// The kernel would refuse to connect the socket, and its second datagram would go elsewhere.
func TestAUDPSocketOutsideTheCgroupStaysAsItIs(t *testing.T) {
	below := cgroupBelow(t)
	forEachKind(t, func(t *testing.T, k kind) {
		vip := k.pick("10.244.0.9:53/UDP", "[fd00:244::9]:53/UDP")
		own, b := mustServe(t, vip), udpBackend(t, k, 1)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		cfg := config(t)
		cfg.Cgroup = below
		n := mustNodeOf(t, cfg)
		n.wantUntouched(s, at(vip), knowing(vip, b), "a backend has come")
		for range 3 {
			s.wantAnswerOf(own, at(vip), "a backend has come")
		}
	})
}

// The socket is in a cgroup within that of the programs, which run for it.
func TestAnOlderUDPSocketOfACgroupBelowGetsABackend(t *testing.T) {
	below := cgroupBelow(t)
	forEachKind(t, func(t *testing.T, k kind) {
		routeAll(t)
		n, b, vip := mustNode(t), udpBackend(t, k, 1), udpVIP(k, 1)
		moveTo(t, below)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		moveTo(t, testenv.Cgroup(t))
		s.mustConnect(at(vip))
		n.change("one", knowing(vip, b))
		s.wantAnswerOf(b, at(vip), "a backend has come")
	})
}

// Its process learns of it, wherever the socket is.
func TestAnOlderUDPSocketWithoutARouteToItsBackendIsTold(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		testenv.EnterNetns(t)
		keepNamespace(t)
		routeServices(t)
		vip, before := udpVIP(k, 1), n.allInFlight()
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.tellFromOutside("one", knowing(vip, farBackend(k)))
		if got := n.allInFlight(); !s.ended() || got != before {
			t.Errorf("ended: %t, %d are in flight; want true, %d", s.ended(), got, before)
		}
	})
}

// The agent connects the socket in vain, and ends before it tells it.
func TestTheNextAgentTellsAnOlderUDPSocketThatTheKernelRefused(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		vip, before := udpVIP(k, 1), n.allInFlight()
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.set("one", knowing(vip, farBackend(k)))
		if err := s.connect(reconnectAddress(k)); !errors.Is(err, unix.ENETUNREACH) {
			t.Fatalf("the kernel says %v, want %v", err, unix.ENETUNREACH)
		}
		n.planner.TakeLosses()
		if err := n.dp.DestroySockets(nil); err != nil {
			t.Fatal(err)
		}
		if got := n.allInFlight(); !s.ended() || got != before {
			t.Errorf("ended: %t, %d are in flight; want true, %d", s.ended(), got, before)
		}
	})
}

// A process that connects its socket elsewhere never finds it at a Service that comes at the same time.
func TestAConnectOfTheProcessIsNotUndoneForAServiceThatComes(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		b, direct, vip := udpBackend(t, k, 1), udpBackend(t, k, 3), udpVIP(k, 1)
		s, again := mustSocket(t, k, unix.SOCK_DGRAM), reconnectAddress(k)
		s.mustConnect(at(vip))
		n.set("one", knowing(vip, b))
		s.mustConnect(direct.addr())
		if err := s.connect(again); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connected elsewhere meanwhile: %v, want %v", err, unix.ECONNREFUSED)
		}
		s.wantAnswerOf(direct, direct.addr(), "connected elsewhere meanwhile")
		stop, moved := make(chan struct{}), 0
		var wg sync.WaitGroup
		wg.Go(func() { // as the agent
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s.connect(again) == nil {
					moved++
				}
			}
		})
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			n.set("one")
			n.sweep()
			s.mustConnectNow(at(vip))
			n.set("one", knowing(vip, b))
			time.Sleep(50 * time.Microsecond)
			s.mustConnectNow(direct.addr())
			for range 5 {
				s.wantPeer(direct.addr(), "connected to a pod")
			}
		}
		close(stop)
		wg.Wait()
		if moved == 0 {
			t.Error("the socket never connected again")
		}
	})
}

// wantNoPeer says that the next call of a socket fails, and that it has no peer.
func (s *socket) wantNoPeer(when string) {
	s.tb.Helper()
	if _, err := unix.Write(s.fd, []byte("lost")); !errors.Is(err, unix.EDESTADDRREQ) {
		s.tb.Errorf("%s: sending: %v, want %v", when, err, unix.EDESTADDRREQ)
	}
}

// No process is in the network namespace, so that the agent destroys no socket there.
func TestAnOlderUDPSocketThatCannotBeDestroyedGivesUpItsPeer(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		testenv.EnterNetns(t)
		vip := k.pick("10.244.0.9:53/UDP", "[fd00:244::9]:53/UDP")
		own := mustServe(t, vip)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		s.wantAnswerOf(own, at(vip), "no Service is there")
		n.tellFromOutside("one", knowing(vip, farBackend(k)))
		s.wantNoPeer("the backend has no route")
	})
}

// The kernel itself looks at the address of the agent, if somebody has detached the programs.
func TestAnOlderUDPSocketThatTheKernelConnectsInVainGivesUpItsPeer(t *testing.T) {
	for name, broadcast := range map[string]int{"refused": 0, "with SO_BROADCAST": 1} {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k kind) {
				n := mustNode(t)
				routeAll(t)
				b, vip := udpBackend(t, k, 1), udpVIP(k, 1)
				s := mustSocket(t, k, unix.SOCK_DGRAM)
				if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_BROADCAST, broadcast); err != nil {
					t.Fatal(err)
				}
				s.mustConnect(at(vip))
				detachPinned(t, n.cfg.Root, "connect")
				n.change("one", knowing(vip, b))
				s.wantNoPeer("the programs are detached")
			})
		})
	}
}

func TestAnOlderUDPSocketThatWouldShareABackendStaysAsItIs(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		routeAll(t)
		b, first, second := udpBackend(t, k, 1), udpVIP(k, 1), udpVIP(k, 2)
		one, two := mustShareOne(t, k, unix.SO_REUSEPORT)
		one.mustConnect(at(first))
		two.mustConnect(at(second))
		n.change("one", knowing(first, b))
		n.change("two", knowing(second, b))
		one.wantAnswerOf(b, at(first), "a backend has come")
		two.wantPeer(at(second), "another socket has the backend")
	})
}
