package netns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// tellFromOutside is change by an agent in another network namespace than this thread.
func (n *node) tellFromOutside(name string, frontends ...lb.Frontend) {
	n.tb.Helper()
	n.set(name, frontends...)
	n.sweep()
	losses, told := n.planner.TakeLosses(), make(chan error)
	go func() { told <- n.dp.DestroySockets(losses) }()
	if err := <-told; err != nil {
		n.tb.Fatal(err)
	}
}

// The client of a socket in a pod is the pod, and not the agent.
func TestASocketOfAPodWithinSourceRangesGetsAnotherBackend(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		testenv.EnterNetns(t)
		keepNamespace(t)
		beside(t, "there0", "10.7.0.%d/24", "fd00:7::%d/64")
		a, b, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), k.pick("192.0.2.77:53/UDP", "[2001:db8::77]:53/UDP")
		with := func(b *backend, ranges ...string) lb.Frontend {
			f := knowing(vip, b)
			for _, r := range ranges {
				f.SourceRanges = append(f.SourceRanges, netip.MustParsePrefix(r))
			}
			return f
		}
		all := []string{"10.7.0.0/16", "fd00:7::/64"}
		n.tellFromOutside("one", with(a, all...))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		own := k.of(netip.AddrPortFrom(netip.MustParseAddr(k.pick("10.7.0.1", "fd00:7::1")), 0))
		if err := unix.Bind(s.fd, s.sockaddr(own)); err != nil {
			t.Fatal(err)
		}
		s.mustConnect(at(vip))
		s.wantAnswerOf(a, at(vip), "connected")
		n.tellFromOutside("one", with(b, all...))
		s.wantAnswerOf(b, at(vip), "the backend has left")
		n.tellFromOutside("one", with(a, "203.0.113.0/24", "2001:db8:1::/64"))
		if !s.ended() {
			t.Error("the source ranges leave the socket out, and it was not told")
		}
	})
}

// mustPodNode starts a datapath that serves pods, and has the test go on in the network namespace of one.
func mustPodNode(t *testing.T) *node {
	t.Helper()
	cfg := config(t)
	cfg.Pods = true
	n := mustNodeOf(t, cfg)
	testenv.EnterNetns(t)
	keepNamespace(t)
	return n
}

// leaveAlone has the datapath leave the sockets of a pod alone, of which it gets one.
func (n *node) leaveAlone(s *socket) {
	n.tb.Helper()
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		n.tb.Fatal(err)
	}
	if err := n.dp.SetDevices([]plan.Device{{Exempt: cookie}}); err != nil {
		n.tb.Fatal(err)
	}
}

// Packets of a pod whose sockets are left alone go to the Service.
func TestASocketOfAPodThatIsLeftAloneSinceGoesToTheService(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustPodNode(t)
		routeServices(t)
		a, b, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1)
		n.change("one", knowing(vip, a))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.leaveAlone(s)
		n.change("one", knowing(vip, b))
		if s.ended() {
			t.Error("the socket was told")
		}
		s.wantPeer(at(vip), "the backend has left")
		if got := n.allInFlight(); got != 0 {
			t.Errorf("%d are in flight, want 0", got)
		}
	})
}

// A socket waits at an address of Services, whatever NodePort has the same number.
func TestASocketThatWaitsIsNotOneOfANodePort(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		n.setServiceCIDRs()
		a, b, port := udpBackend(t, k, 1), udpBackend(t, k, 2), k.pick("0.0.0.0:30053/UDP", "[::]:30053/UDP")
		n.change("port", knowing(port, a))
		peer := at(k.pick("10.96.0.9:30053", "[fd00:96::9]:30053"))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(peer)
		n.change("port", knowing(port, b))
		if s.ended() {
			t.Error("the socket was told")
		}
		s.wantPeer(peer, "the NodePort has another backend")
	})
}

// What a connected socket sends by sendto() to its own Service, or to others, does not keep it from another backend.
func TestAConnectedUDPSocketThatSendsElsewhereGetsAnotherBackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		a, b, vip, peer := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1), at(udpVIP(k, 1))
		n.change("one", knowing(vip, a))
		for i := 2; i < 8; i++ {
			n.change(fmt.Sprint("other", i), knowing(udpVIP(k, i), b))
		}
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(peer)
		n.set("one", knowing(vip))
		n.sweep()
		if err := s.sendTo(k.of(peer), "x"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("sendto() a Service without a backend: %v, want %v", err, unix.ECONNREFUSED)
		}
		n.destroyLost()
		s.wantPeer(peer, "no backend is left")
		s.sendLost()
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if ready, err := unix.Poll(fds, 50); ready != 0 || err != nil {
			t.Errorf("%d answers (%v) though no backend is left", ready, err)
		}
		for i := 2; i < 8; i++ {
			if err := s.sendTo(k.of(at(udpVIP(k, i))), "who"); err != nil {
				t.Fatal(err)
			}
		}
		n.change("one", knowing(vip, a))
		s.wantAnswerOf(a, peer, "a backend is there again")
	})
}

// Nothing is in flight at a backend to which the kernel has not connected a socket.
func TestASocketThatCannotConnectAgainIsNotInFlight(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		a, vip := udpBackend(t, k, 1), udpVIP(k, 1)
		far := farBackend(k)
		n.change("one", knowing(vip, a))
		before := n.allInFlight()
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		n.change("one", knowing(vip, far))
		if got := n.allInFlight(); !s.ended() || got != before {
			t.Errorf("ended: %t, %d are in flight; want true, %d", s.ended(), got, before)
		}
	})
}

// The maps change while the agent has sockets connect again: the next backend leaves before the agent has looked
// for sockets that it has to tell.
func TestSocketsWhoseNextBackendLeavesAtOnceAreNotTold(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		routeServices(t)
		a, b, vip := udpBackend(t, k, 1), udpBackend(t, k, 2), udpVIP(k, 1)
		n.change("one", knowing(vip, a))
		var all []*socket
		for range 20 {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			s.mustConnect(at(vip))
			all = append(all, s)
		}
		for i := range 12 {
			n.set("one", knowing(vip, b))
			losses, done := n.planner.TakeLosses(), make(chan error)
			go func() { done <- n.dp.DestroySockets(losses) }()
			time.Sleep(time.Duration(i) * 4 * time.Millisecond)
			n.set("one", knowing(vip))
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			n.destroyLost()
			if told := toldNow(all); len(told) > 0 {
				t.Fatalf("%d of %d sockets were told, %d ms after their backend had left", len(told), len(all), i*4)
			}
			n.change("one", knowing(vip, a))
		}
		all[0].wantAnswerOf(a, at(vip), "at the end")
	})
}
