package netns_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// udpBackend starts the i-th backend of a kind of socket.
func udpBackend(t *testing.T, k kind, i int) *backend {
	t.Helper()
	return mustServe(t, fmt.Sprintf(k.pick("10.244.0.%d:5353/UDP", "[fd00:244::%d]:5353/UDP"), i))
}

// farBackend is one to which there is no route.
func farBackend(k kind) *backend {
	return &backend{at: mustAddrPort(k.pick("198.51.100.1:53/UDP", "[2001:db8:9::1]:53/UDP"))}
}

// udpVIP is the i-th Service address of a kind of socket.
func udpVIP(k kind, i int) string {
	return fmt.Sprintf(k.pick("10.96.0.%d:53/UDP", "[fd00:96::%d]:53/UDP"), i)
}

func TestAConnectedUDPSocketShowsTheServiceAsItsPeer(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, vip, b := mustNode(t), udpVIP(k, 1), udpBackend(t, k, 1)
		n.set("dns", frontend(vip, b))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.mustConnect(at(vip))
		s.wantPeer(at(vip), "connected")
		s.send("who")
		if who, from := s.receive(); who != b.name() || from != k.of(at(vip)) {
			t.Errorf("%q answers from %s, want %q from %s", who, from, b.name(), at(vip))
		}
		if who := s.ask(at(vip)); who != b.name() { // with the address, though connected
			t.Errorf("%q answers, want %q", who, b.name())
		}
		s.send("hold")
		n.set("dns")
		n.sweep()
		s.wantPeer(at(vip), "after the Service is gone")
		close(b.hold)
		if _, from := s.receive(); from != k.of(at(vip)) {
			t.Errorf("a late answer comes from %s, want %s", from, at(vip))
		}
	})
}

// A socket whose entry is in the socket_nat map, and one that found its place
// there taken.
func forEachPlace(t *testing.T, f func(*testing.T, kind, *node)) {
	for name, size := range map[string]uint32{"with its entry in the map": 1 << 12, "with its entry in socket storage": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.SocketEntries = size
			n := mustNodeOf(t, cfg)
			if size == 1 {
				n.takeOnlySlot()
			}
			forEachKind(t, func(t *testing.T, k kind) { f(t, k, n.anew(t)) })
		})
	}
}

// takeOnlySlot makes a socket that has the only slot of the socket_nat map.
func (n *node) takeOnlySlot() {
	n.tb.Helper()
	n.set("first", frontend("10.96.9.9:53/UDP", &backend{at: mustAddrPort("127.0.0.1:5353/UDP")}))
	s := mustSocket(n.tb, inet, unix.SOCK_DGRAM)
	s.mustConnect(at("10.96.9.9:53"))
	if got := n.socketEntries(); got != 1 {
		n.tb.Fatalf("%d entries in the map, want 1", got)
	}
}

func TestAUDPSocketThatConnectsAgainShowsItsNewPeer(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b, other := udpBackend(t, k, 1), udpBackend(t, k, 2)
		one, two, three := udpVIP(k, 1), udpVIP(k, 2), udpVIP(k, 3)
		n.set("one", frontend(one, b))
		n.set("two", frontend(two, b))
		n.set("three", frontend(three, other))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		for _, to := range []netip.AddrPort{
			at(one), at(two), at(three), b.addr(), at(one), other.addr(), at(two), at(one), b.addr(), other.addr(),
		} {
			s.mustConnect(to)
			s.wantPeer(to, "connected to "+to.String())
			s.send("who")
			if _, from := s.receive(); from != k.of(to) {
				t.Errorf("connected to %s, the answer comes from %s", to, from)
			}
		}
		s.mustConnect(at(one))
		s.disconnect()
		if got, err := s.peer(); err != unix.ENOTCONN {
			t.Errorf("disconnected, getpeername says %v (%v), want ENOTCONN", got, err)
		}
		s.mustConnect(other.addr())
		s.wantPeer(other.addr(), "connected to a backend after a disconnect")
	})
}

func TestAnswersToAnUnconnectedUDPSocketComeFromTheService(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip, b := udpVIP(k, 1), udpBackend(t, k, 1)
		n.set("dns", frontend(vip, b))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		if who := s.ask(at(vip)); who != b.name() {
			t.Errorf("%q answers, want %q", who, b.name())
		}
		if err := s.sendMsg(at(vip), "who"); err != nil {
			t.Fatal(err)
		}
		if who, from := s.receiveMsg(); who != b.name() || from != k.of(at(vip)) {
			t.Errorf("%q answers from %s, want %q from %s", who, from, b.name(), at(vip))
		}
		if err := s.sendTo(at(vip), "hold"); err != nil {
			t.Fatal(err)
		}
		n.set("dns")
		n.sweep()
		close(b.hold)
		if _, from := s.receive(); from != k.of(at(vip)) {
			t.Errorf("a late answer comes from %s, want %s", from, at(vip))
		}
	})
}

func TestUDPToNoServiceIsLeftAlone(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b, direct := udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.set("dns", frontend(udpVIP(k, 1), b))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		for range 3 { // between datagrams to the Service
			if who := s.ask(direct.addr()); who != direct.name() {
				t.Errorf("%q answers, want %q", who, direct.name())
			}
			s.ask(at(udpVIP(k, 1)))
		}
		c := mustSocket(t, k, unix.SOCK_DGRAM)
		c.mustConnect(direct.addr())
		c.wantPeer(direct.addr(), "connected")
	})
}

func TestAnUnconnectedUDPSocketStaysWithItsBackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip := udpVIP(k, 1)
		var backends []*backend
		for i := range 6 {
			backends = append(backends, udpBackend(t, k, i+1))
		}
		n.set("dns", knowing(vip, backends[:4]...))
		var sockets []*socket
		var first []string
		for range 20 {
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			sockets, first = append(sockets, s), append(first, s.ask(at(vip)))
		}
		wantSame := func(when string) {
			t.Helper()
			for i, s := range sockets {
				for range 3 {
					if who := s.ask(at(vip)); who != first[i] {
						t.Errorf("%s: socket %d comes to %q, was with %q", when, i, who, first[i])
					}
				}
			}
		}
		wantSame("unchanged")
		n.set("dns", knowing(vip, backends[:6]...)) // another table elsewhere
		wantSame("two more backends")
		n.set("other", frontend(udpVIP(k, 2), backends[5]))
		n.set("dns", knowing(vip, backends[:5]...))
		n.sweep()
		wantSame("the table has moved")

		gone := backends[0].name()
		n.set("dns", knowing(vip, backends[1:5]...))
		n.sweep()
		moved := 0
		for i, s := range sockets {
			if first[i] == gone {
				moved++
				first[i] = s.ask(at(vip))
			}
			if first[i] == gone {
				t.Errorf("socket %d still comes to %q, which is gone", i, gone)
			}
		}
		wantSame(fmt.Sprintf("one backend is gone, %d sockets have moved on", moved))
	})
}

func TestAMovedUDPSocketStaysWithItsNewBackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip := udpVIP(k, 1)
		b := []*backend{udpBackend(t, k, 1), udpBackend(t, k, 2), udpBackend(t, k, 3), udpBackend(t, k, 4)}
		n.set("dns", frontend(vip, b[0]))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.ask(at(vip))
		n.set("dns", frontend(vip, b[1:]...))
		n.sweep()
		home := s.ask(at(vip))
		for i := range 30 { // by chance alone it would stay once in 3^30
			if who := s.ask(at(vip)); who != home {
				t.Fatalf("datagram %d comes to %q, the one before to %q", i, who, home)
			}
		}
		if got := n.status().Counters["socket_entry_replaced"]; got != 0 {
			t.Errorf("%d entries made room, want 0", got)
		}
	})
}

func TestAUDPSocketTalksToSeveralServicesAtOnce(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		services := 5
		if n.cfg.SocketEntries == 1 {
			services = 4 // what socket storage holds
		}
		want := map[string]string{}
		for i := range services {
			b := udpBackend(t, k, i+1)
			n.set(fmt.Sprint("s", i), frontend(udpVIP(k, i+1), b))
			want[udpVIP(k, i+1)] = b.name()
		}
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		for range 3 {
			for vip := range want {
				if err := s.sendTo(at(vip), "who"); err != nil {
					t.Fatal(err)
				}
			}
			for range want {
				who, from := s.receive()
				vip := netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String() + "/UDP"
				if want[vip] != who {
					t.Errorf("%q answers from %s, whose backend is %q", who, vip, want[vip])
				}
			}
		}
		if got := n.status().Counters["socket_entry_replaced"]; got != 0 {
			t.Errorf("%d entries made room, want 0", got)
		}
	})
}

func TestABackendIDThatIsUsedAgainKeepsNoEntry(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip, old, reborn := udpVIP(k, 1), udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.set("dns", frontend(vip, old))
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		s.ask(at(vip))
		id := n.backendID(old)
		n.set("dns", frontend(vip))
		n.sweep()
		n.set("dns", frontend(vip, reborn))
		if got := n.backendID(reborn); got != id {
			t.Fatalf("the new backend has ID %d, not %d again: the test tests nothing", got, id)
		}
		if who := s.ask(at(vip)); who != reborn.name() {
			t.Errorf("%q answers, want %q", who, reborn.name())
		}
	})
}

func TestAUDPSocketBoundToALoopbackAddressReachesANodePort(t *testing.T) {
	n, b := mustNode(t), mustServe(t, "127.0.0.1:5353/UDP")
	n.setAddresses(map[string]plan.AddressKind{"127.0.0.1": plan.LoopbackAddress})
	n.set("dns", frontend("0.0.0.0:30053/UDP", b))
	s := mustSocket(t, inet, unix.SOCK_DGRAM)
	if err := unix.Bind(s.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if who := s.ask(at("127.0.0.1:30053")); who != b.name() {
		t.Errorf("%q answers, want %q", who, b.name())
	}
}
