package netns_test

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// routeServices gives the addresses of Services a route, as the default route of a node does. Packets there are lost.
func routeServices(tb testing.TB) {
	tb.Helper()
	routeTo(tb, "10.96.0.0/16", "fd00:96::/64")
}

// routeTo routes prefixes to where packets are lost.
func routeTo(tb testing.TB, prefixes ...string) {
	tb.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		tb.Fatal(err)
	}
	for _, text := range prefixes {
		to, err := netlink.ParseIPNet(text)
		if err != nil {
			tb.Fatal(err)
		}
		r := netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to}
		if err := netlink.RouteReplace(&r); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = netlink.RouteDel(&r) })
	}
}

// change is set, and what the reconciler does then.
func (n *node) change(name string, frontends ...lb.Frontend) {
	n.tb.Helper()
	n.set(name, frontends...)
	n.sweep()
	n.destroyLost()
}

// wantAnswerOf sends by a connected socket until a backend answers it: an answer of an earlier one may come before.
func (s *socket) wantAnswerOf(b *backend, peer netip.AddrPort, when string) {
	s.tb.Helper()
	if s.ended() {
		s.tb.Fatalf("%s: the socket was told that its backend is gone", when)
	}
	s.wantPeer(peer, when)
	if who := s.askPeer(peer); who != b.name() {
		s.tb.Errorf("%s: %q answers, want %q", when, who, b.name())
	}
}

// sendLost sends what no backend gets. Datagrams of an IPv6 socket to an IPv4 peer are refused like those of unconnected sockets.
func (s *socket) sendLost() {
	s.tb.Helper()
	_, err := unix.Write(s.fd, []byte("lost"))
	if s.kind.mapped && errors.Is(err, unix.ECONNREFUSED) {
		return
	}
	if err != nil {
		s.tb.Fatal(err)
	}
}

func TestAConnectedUDPSocketGetsAnotherBackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		a, b := udpBackend(t, k, 1), udpBackend(t, k, 2)
		vip, peer := udpVIP(k, 1), at(udpVIP(k, 1))
		n.change("one", knowing(vip, a))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(peer)
		s.wantAnswerOf(a, peer, "connected")
		own, inFlight := s.local(), n.allInFlight()
		n.change("one", knowing(vip, b))
		s.wantAnswerOf(b, peer, "the backend has left")
		n.change("one", knowing(vip))
		s.wantPeer(peer, "no backend is left")
		s.sendLost()
		if got := n.allInFlight(); got != inFlight-1 {
			t.Errorf("%d are in flight while the socket waits, want %d", got, inFlight-1)
		}
		n.change("other", knowing(udpVIP(k, 2), b))
		s.wantPeer(peer, "another Service has a backend")
		n.change("one", knowing(vip, a))
		s.wantAnswerOf(a, peer, "a backend is there again")
		n.change("one")
		s.wantPeer(peer, "the Service is gone")
		n.change("one", knowing(vip, b))
		s.wantAnswerOf(b, peer, "the Service is there again")
		if s.local() != own {
			t.Errorf("the socket has %v, had %v", s.local(), own)
		}
		if got := n.allInFlight(); got != inFlight {
			t.Errorf("%d are in flight, want %d", got, inFlight)
		}
	})
}

// mustConnectNow connects a socket that the agent may just be connecting.
func (s *socket) mustConnectNow(to netip.AddrPort) {
	s.tb.Helper()
	for {
		err := s.connect(to)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) {
			s.tb.Fatal(err)
		}
	}
}

// reconnectAddress is the address by which the agent connects sockets again.
func reconnectAddress(k kind) netip.AddrPort {
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 0)
	if k == inet6 {
		return mapped.of(to)
	}
	return k.of(to)
}

// A process that connects its socket elsewhere at the same time never finds it at the Service.
func TestAConnectOfTheProcessIsNeverUndone(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, b, direct := udpBackend(t, k, 1), udpBackend(t, k, 2), udpBackend(t, k, 3)
		vip := udpVIP(k, 1)
		n.set("one", knowing(vip, a))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		stop, again := make(chan struct{}), s.sockaddr(reconnectAddress(k))
		moved := 0
		var wg sync.WaitGroup
		until := func(do func()) {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						do()
					}
				}
			})
		}
		until(func() { // as the agent
			if unix.Connect(s.fd, again) == nil {
				moved++
			}
		})
		until(func() {
			s.mustConnectNow(at(vip))
			time.Sleep(50 * time.Microsecond)
			s.mustConnectNow(direct.addr())
			for range 5 {
				s.wantPeer(direct.addr(), "connected to a pod")
			}
		})
		for end := time.Now().Add(time.Second); time.Now().Before(end); a, b = b, a {
			n.set("one", knowing(vip, b))
		}
		close(stop)
		wg.Wait()
		if moved == 0 {
			t.Error("the socket never connected again")
		}
	})
}

// The address by which the agent connects sockets again has its usual meaning for processes.
func TestASocketThatConnectsToTheBroadcastAddressIsLeftAlone(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b, vip, peer := udpBackend(t, k, 1), udpVIP(k, 1), at(udpVIP(k, 1))
		n.change("one", knowing(vip, b))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		if err := s.connect(reconnectAddress(k)); errors.Is(err, unix.ECONNREFUSED) {
			t.Error("a socket without a peer is refused")
		}
		s.mustConnect(peer)
		s.wantAnswerOf(b, peer, "connected to a Service")
		if err := s.connect(reconnectAddress(k)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a socket of a good backend: %v, want %v", err, unix.ECONNREFUSED)
		}
		s.wantAnswerOf(b, peer, "not connected to the broadcast address")
	})
}

// The datapath refuses a process until the agent has closed the connection that the kernel refused. The process connects the socket
// then. If the agent has ended, the next one looks for all losses.
func TestAProcessConnectsASocketThatTheAgentCouldNot(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b, direct, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1)
		nextAgent := func() {
			n.planner.TakeLosses()
			if err := n.dp.DestroySockets(nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, closeSocket := range []func(){n.destroyLost, nextAgent} {
			n.change("one", knowing(vip, b))
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(at(vip))
			n.set("one")
			if err := s.connect(reconnectAddress(k)); !errors.Is(err, unix.ENETUNREACH) {
				t.Fatalf("connect to a Service without a route: %v, want %v", err, unix.ENETUNREACH)
			}
			for range 3 {
				s.wantTaken(direct.addr())
			}
			n.sweep()
			closeSocket()
			if told, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || unix.Errno(told) != unix.ECONNABORTED {
				t.Errorf("the socket is told %v (%v), want %v", unix.Errno(told), err, unix.ECONNABORTED)
			}
			s.mustConnect(direct.addr())
			s.wantAnswerOf(direct, direct.addr(), "connected to a pod")
			n.destroyLost()
			s.wantAnswerOf(direct, direct.addr(), "other sockets are told")
		}
	})
}

// A socket that is in no table of files, but on its way to another process, is told.
func TestAConnectedUDPSocketThatNoProcessHasOpenIsTold(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, b, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1)
		n.change("one", knowing(vip, a))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		way, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(way[0])
		defer unix.Close(way[1])
		if err := unix.Sendmsg(way[0], []byte("x"), unix.UnixRights(s.fd), nil, 0); err != nil {
			t.Fatal(err)
		}
		s.close()
		n.change("one", knowing(vip, b))
		buf := make([]byte, 64)
		_, size, _, _, err := unix.Recvmsg(way[1], make([]byte, 1), buf, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := unix.ParseSocketControlMessage(buf[:size])
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil {
			t.Fatal(err)
		}
		came := &socket{t, fds[0], k}
		defer came.close()
		if !came.ended() {
			t.Error("the socket was not told")
		}
	})
}

// A socket that connected to an address of Services before there was one is served as soon as there is.
func TestAUDPSocketOlderThanItsServiceGetsABackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		n.setServiceCIDRs()
		b, vip, peer := udpBackend(t, k, 1), udpVIP(k, 1), at(udpVIP(k, 1))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(peer)
		s.wantPeer(peer, "no Service is there")
		s.sendLost()
		n.change("one", knowing(vip, b))
		s.wantAnswerOf(b, peer, "the Service has come")
	})
}

// A socket that cannot reach its Service without a backend is told, as one whose port another socket has at the only backend is.
func TestAConnectedUDPSocketThatCannotConnectAgainIsTold(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, b, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1)
		n.change("one", knowing(vip, a))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.change("one") // its address has no route
		if !s.ended() {
			t.Error("the socket without a route to its Service was not told")
		}
		n.change("one", knowing(vip, a))
		n.change("two", knowing(udpVIP(k, 2), b))
		own := k.pick("10.7.0.1", "fd00:7::1")
		testenv.AddAddress(t, own)
		bound := k.of(netip.AddrPortFrom(netip.MustParseAddr(own), 40056))
		one, two := mustShare(t, k, unix.SO_REUSEADDR, bound), mustShare(t, k, unix.SO_REUSEADDR, bound)
		one.mustConnect(at(vip))
		two.mustConnect(at(udpVIP(k, 2)))
		n.change("one", knowing(vip, b))
		if !one.ended() {
			t.Error("the socket without a tuple of its own was not told")
		}
		two.wantAnswerOf(b, at(udpVIP(k, 2)), "another socket has lost its backend")
	})
}

// A Service may have its sockets closed: those that connect while it does.
func TestAConnectedUDPSocketOfAServiceThatClosesThemIsTold(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		a, b, vip, peer := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1), at(udpVIP(k, 1))
		closing := func(backends ...*backend) lb.Frontend {
			f := knowing(vip, backends...)
			f.CloseUDP = true
			return f
		}
		connect := func() *socket {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(peer)
			return s
		}
		n.change("one", knowing(vip, a))
		before := connect()
		n.change("one", closing(a))
		s, gone := connect(), connect()
		n.change("one", closing(b))
		before.wantAnswerOf(b, peer, "connected before the Service closes sockets")
		if !s.ended() {
			t.Error("the backend has left, and the socket was not told")
		}
		_, err := unix.Read(s.fd, make([]byte, 1))
		if _, again := unix.Write(s.fd, []byte("x")); !errors.Is(err, unix.ECONNABORTED) || !errors.Is(again, unix.EDESTADDRREQ) {
			t.Errorf("the calls say %v and %v, want %v and %v", err, again, unix.ECONNABORTED, unix.EDESTADDRREQ)
		}
		gone.close()
		last := connect()
		n.change("one")
		if !last.ended() {
			t.Error("the Service is gone, and the socket was not told")
		}
	})
}

// Answers that came before stay, and a receiver that waits goes on to wait.
func TestAReceiverWaitsOnWhenItsSocketGetsAnotherBackend(t *testing.T) {
	n, a, b, vip := mustNode(t), udpBackend(t, inet, 1), udpBackend(t, inet, 2), udpVIP(inet, 1)
	n.change("one", knowing(vip, a))
	c, err := net.Dial("udp", at(vip).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(chan error, 1)
	answer := make([]byte, 64)
	var size int
	go func() {
		var err error
		size, err = c.Read(answer)
		got <- err
	}()
	time.Sleep(50 * time.Millisecond) // it is in read() by then, most likely
	n.change("one", knowing(vip, b))
	if _, err := c.Write([]byte("who")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.SetReadDeadline(time.Now().Add(10*time.Second)), <-got); err != nil || string(answer[:size]) != b.name() {
		t.Errorf("read says %q, %v; want %q", answer[:size], err, b.name())
	}
}
