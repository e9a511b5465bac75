package netns_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpService is a Service with one backend, for one kind of socket.
func tcpService(t *testing.T, k kind) (n *node, vip netip.AddrPort, b *backend) {
	t.Helper()
	b = mustServe(t, k.pick("10.244.0.1:8080/TCP", "[fd00:244::1]:8080/TCP"))
	n = mustNode(t)
	address := k.pick("10.96.0.1:80/TCP", "[fd00:96::1]:80/TCP")
	n.set("web", frontend(address, b))
	return n, at(address), b
}

func forEachKind(t *testing.T, f func(*testing.T, kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

func TestATCPConnectionShowsTheServiceAsItsPeer(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, vip, b := tcpService(t, k)
		s, who := dialTCP(t, k, vip)
		if who != b.name() {
			t.Errorf("%q answers, want %q", who, b.name())
		}
		n.set("web", frontend(n.vip(), mustServe(t, k.pick("10.244.0.2:8080/TCP", "[fd00:244::2]:8080/TCP"))))
		n.sweep()
		s.wantPeer(vip, "after its backend has left the Service")
		n.set("web")
		n.sweep()
		s.wantPeer(vip, "after the Service is gone")
		s.send("still there?")
		if echo, _ := s.receive(); echo != "still there?" {
			t.Errorf("the connection says %q", echo)
		}
		if got := n.status().Counters["connect"]; got != 1 {
			t.Errorf("%d connects are counted, want 1", got)
		}
	})
}

// vip is the only frontend of the node, with its protocol.
func (n *node) vip() string {
	n.tb.Helper()
	for key := range n.content().Frontends {
		return key.String()
	}
	n.tb.Fatal("no frontend")
	return ""
}

func TestANonBlockingConnectIsBalanced(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		_, vip, b := tcpService(t, k)
		s := mustSocket(t, k, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
		if err := s.connect(vip); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatalf("connect: %v", err)
		}
		s.await(unix.POLLOUT)
		s.wantPeer(vip, "connected")
		s.await(unix.POLLIN)
		if who, _ := s.receive(); who != b.name() {
			t.Errorf("%q answers, want %q", who, b.name())
		}
	})
}

// await waits for an event of poll(2).
func (s *socket) await(event int16) {
	s.tb.Helper()
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: event}}
	for {
		n, err := unix.Poll(fds, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			s.tb.Fatalf("poll: %d events, %v", n, err)
		}
		return
	}
}

func TestTCPFastOpenIsBalanced(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		_, vip, b := tcpService(t, k)
		s := mustSocket(t, k, unix.SOCK_STREAM)
		if err := unix.Sendto(s.fd, []byte("early"), unix.MSG_FASTOPEN, s.sockaddr(vip)); err != nil {
			t.Fatalf("sendto with MSG_FASTOPEN: %v", err)
		}
		s.wantPeer(vip, "connected")
		if who, _ := s.receive(); who[:len(b.name())] != b.name() {
			t.Errorf("%q answers, want %q", who, b.name())
		}
	})
}

func TestATCPSocketThatConnectsAgainShowsItsNewPeer(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		_, vip, b := tcpService(t, k)
		s, _ := dialTCP(t, k, vip)
		s.disconnect()
		s.mustConnect(b.addr())
		s.wantPeer(b.addr(), "connected to the backend by its own address")
		s.disconnect()
		s.mustConnect(vip)
		s.wantPeer(vip, "connected to the Service again")
	})
}

func TestTCPToNoServiceIsLeftAlone(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, _, b := tcpService(t, k)
		_, who := dialTCP(t, k, b.addr())
		if who != b.name() {
			t.Errorf("%q answers, want %q", who, b.name())
		}
		neighbour := mustServe(t, k.pick("10.96.0.2:80/TCP", "[fd00:96::2]:80/TCP"))
		if _, who := dialTCP(t, k, neighbour.addr()); who != neighbour.name() {
			t.Errorf("%q answers, want %q", who, neighbour.name())
		}
		for name, count := range n.status().Counters {
			if count != 0 {
				t.Errorf("%s is counted: %d", name, count)
			}
		}
	})
}
