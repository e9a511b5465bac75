package netns_test

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

const staleTCP, staleUDP = "10.96.0.1:80", "10.96.0.2:53"

// staleNode is a node with a Service of each protocol.
func staleNode(t *testing.T) *node {
	t.Helper()
	n := mustNode(t)
	web, dns := staleBackends(t)
	n.set("web", frontend(staleTCP+"/TCP", web))
	n.set("dns", frontend(staleUDP+"/UDP", dns))
	return n
}

// staleBackends are those of the Services, in the network namespace of this thread.
func staleBackends(t *testing.T) (web, dns *backend) {
	t.Helper()
	return mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:5353/UDP")
}

// staleSockets are a TCP socket, a connected and an unconnected UDP socket to the
// Services, in the network namespace of this thread.
func staleSockets(t *testing.T) []*socket {
	t.Helper()
	web, connected, unconnected := mustSocket(t, inet, unix.SOCK_STREAM), mustSocket(t, inet, unix.SOCK_DGRAM), mustSocket(t, inet, unix.SOCK_DGRAM)
	web.mustConnect(at(staleTCP))
	connected.mustConnect(at(staleUDP))
	unconnected.ask(at(staleUDP))
	return []*socket{web, connected, unconnected}
}

func (s *socket) cookie() uint64 {
	s.tb.Helper()
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		s.tb.Fatal(err)
	}
	return cookie
}

// slot returns what the socket_nat map holds where a socket looks.
func (n *node) slot(cookie uint64) []byte {
	n.tb.Helper()
	m := mustPinned(n.tb, filepath.Join(n.cfg.Root, "maps", "socket_nat"))
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(uint32(cookie)&(m.MaxEntries()-1), value); err != nil {
		n.tb.Fatal(err)
	}
	return value
}

func (n *node) owns(cookie uint64) bool {
	return binary.NativeEndian.Uint64(n.slot(cookie)) == cookie
}

// closeUnseen closes sockets and has it look as if no program had been in force.
func (n *node) closeUnseen(sockets []*socket) {
	n.tb.Helper()
	m := mustPinned(n.tb, filepath.Join(n.cfg.Root, "maps", "socket_nat"))
	for _, s := range sockets {
		cookie := s.cookie()
		if !n.owns(cookie) {
			n.tb.Fatal("a socket has no slot of its own")
		}
		was := n.slot(cookie)
		s.close()
		if err := m.Put(uint32(cookie)&(m.MaxEntries()-1), was); err != nil {
			n.tb.Fatal(err)
		}
		const backendID = 8 + 20 + 20 // behind the owner, the frontend and the backend
		n.miscount(binary.NativeEndian.Uint32(was[backendID:]), 1)
	}
}

// recountUntil recounts until so many slots are in use, and in flight with them.
func (n *node) recountUntil(slots int) {
	n.tb.Helper()
	eventually(n.tb, "the slots of sockets that are gone are free", func() bool {
		if corrected, err := n.dp.Recount(); corrected != 0 || err != nil {
			n.tb.Fatalf("a recount of what is right corrects %d backends: %v", corrected, err)
		}
		return n.socketEntries() == uint32(slots)
	})
	if got := n.allInFlight(); got != slots {
		n.tb.Errorf("%d are in flight, want %d", got, slots)
	}
}

// A slot is freed only where it is certain that its socket is gone: not in a network
// namespace that nobody finds, and sockets that are only idle keep theirs.
func TestSlotsOfSocketsThatAreGoneAreFreed(t *testing.T) {
	n := staleNode(t)
	live := staleSockets(t)
	n.closeUnseen(staleSockets(t))
	n.recountUntil(len(live))

	testenv.EnterNetns(t) // nothing but sockets keeps it
	staleBackends(t)
	live = append(live, staleSockets(t)...)
	unsure := staleSockets(t)
	n.closeUnseen(unsure)

	testenv.EnterNetns(t)
	keepNamespace(t)
	staleBackends(t)
	for range 2 { // searches enough for those before, too
		live = append(live, staleSockets(t)...)
		n.closeUnseen(staleSockets(t))
		n.recountUntil(len(live) + len(unsure))
	}
	for _, s := range live {
		if !n.owns(s.cookie()) {
			t.Error("an idle socket has lost its slot")
		}
	}
}

// A TCP socket that has no connection any more is found nowhere. Its process may close
// it, or connect it again: what is in flight is right all the same.
func TestASlotThatWasFreedBeforeItsSocketIsNotFreedTwice(t *testing.T) {
	n := staleNode(t)
	live := staleSockets(t)
	ended := []*socket{staleSockets(t)[0], staleSockets(t)[0]}
	rest := 4 // datagram sockets beside them
	for _, s := range ended {
		s.disconnect()
	}
	n.recountUntil(len(live) + rest)
	ended[0].close()
	ended[1].mustConnect(at(staleTCP))
	n.recountUntil(len(live) + rest + 1)
}
