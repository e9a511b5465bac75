package netns_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// The answers of one backend by two Services look alike: so a socket gets one backend
// by one Service, as long as there are enough.
func TestASocketGetsAnotherBackendByEachService(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		all := []*backend{udpBackend(t, k, 1), udpBackend(t, k, 2), udpBackend(t, k, 3)}
		for i := range all {
			n.set(fmt.Sprint("s", i), frontend(udpVIP(k, i+1), all...))
		}
		for range 10 {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			has := map[string]string{}
			for i := range all {
				who := s.ask(at(udpVIP(k, i+1)))
				if other := has[who]; other != "" {
					t.Errorf("%s and %s have the same backend %s", other, udpVIP(k, i+1), who)
				}
				has[who] = udpVIP(k, i+1)
			}
			s.close()
		}
	})
}

// A client that has to get a certain backend gets it.
func TestASocketKeepsTheBackendThatAHashChooses(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNode(t)
		all := []*backend{udpBackend(t, k, 1), udpBackend(t, k, 2), udpBackend(t, k, 3)}
		for i := range 3 {
			f := frontend(udpVIP(k, i+1), all...)
			f.Algorithm = lb.SH
			n.set(fmt.Sprint("s", i), f)
		}
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		home := s.ask(at(udpVIP(k, 1)))
		for i := range 3 {
			if who := s.ask(at(udpVIP(k, i+1))); who != home {
				t.Errorf("the client has %s by one Service and %s by another", home, who)
			}
		}
	})
}

// With more Services than backends the last question decides, and a backend may also
// be asked by its own address.
func TestAnAnswerComesFromTheAddressThatWasAskedLast(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		one, two := udpBackend(t, k, 1), udpBackend(t, k, 2)
		const services = 12
		for i := range services {
			n.set(fmt.Sprint("s", i), frontend(udpVIP(k, i+1), one, two))
		}
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		first := map[string]string{}
		for round := range 3 {
			for i := range services {
				vip := udpVIP(k, i+1)
				who := s.ask(at(vip))
				if round > 0 && who != first[vip] {
					t.Errorf("%s is answered by %q, was by %q", vip, who, first[vip])
				}
				first[vip] = who
				s.ask(one.addr())
				s.ask(two.addr())
			}
		}
		s.ask(at(udpVIP(k, 1)))
		s.mustConnect(at(udpVIP(k, 2)))
		s.send("who")
		if _, from := s.receive(); from != k.of(at(udpVIP(k, 2))) {
			t.Errorf("connected to %s, the answer comes from %s", udpVIP(k, 2), from)
		}
	})
}

// The port is the socket's own, so that it keeps it without a peer.
func TestADisconnectedSocketSeesAddressesAsTheyAre(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip, b := udpVIP(k, 1), udpBackend(t, k, 1)
		n.set("dns", frontend(vip, b))
		for name, first := range map[string]func(*socket){
			"at once":                  func(*socket) {},
			"after asking elsewhere":   func(s *socket) { _ = s.sendTo(netip.AddrPortFrom(b.addr().Addr(), 9), "x") },
			"after asking the backend": func(s *socket) { s.ask(b.addr()) },
		} {
			t.Run(name, func(t *testing.T) {
				before := n.allInFlight()
				s := mustSocket(t, k, unix.SOCK_DGRAM)
				self := netip.AddrPortFrom(b.addr().Addr(), 40053)
				if err := unix.Bind(s.fd, s.sockaddr(self)); err != nil {
					t.Fatal(err)
				}
				s.mustConnect(at(vip))
				s.send("hold")
				s.disconnect()
				first(s)
				b.hold <- struct{}{}
				if _, from := s.receive(); from != k.of(b.addr()) {
					t.Errorf("a datagram of the backend comes from %s, want %s", from, b.addr())
				}
				if got := n.allInFlight(); got != before {
					t.Errorf("the socket has no peer, and %d are in flight", got-before)
				}
				if who := s.ask(at(vip)); who != b.name() {
					t.Errorf("%q answers, want %q", who, b.name())
				}
				s.close()
			})
		}
	})
}
