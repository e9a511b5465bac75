package netns_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNoEntryIsLostToOtherSockets(t *testing.T) {
	const slots, opened = 16, 200
	forEachKind(t, func(t *testing.T, k kind) {
		cfg := config(t)
		cfg.SocketEntries = slots
		n := mustNodeOf(t, cfg)
		tcpVIP, vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80"), udpVIP(k, 1)
		web, dns := mustServe(t, k.pick("10.244.0.1:8080/TCP", "[fd00:244::1]:8080/TCP")), udpBackend(t, k, 1)
		n.set("web", frontend(tcpVIP+"/TCP", web))
		n.set("dns", frontend(vip, dns))
		var connected, unconnected []*socket
		for range opened {
			s, _ := dialTCP(t, k, at(tcpVIP))
			u := mustSocket(t, k, unix.SOCK_DGRAM)
			u.ask(at(vip))
			connected, unconnected = append(connected, s), append(unconnected, u)
		}
		for i, s := range connected {
			s.wantPeer(at(tcpVIP), fmt.Sprintf("TCP socket %d of %d", i, opened))
		}
		for _, s := range unconnected {
			s.ask(at(vip))
		}
		counters := n.status().Counters
		if got := counters["socket_entry_stored"]; got < 2*opened-slots {
			t.Errorf("%d entries are kept in socket storage, want %d at least", got, 2*opened-slots)
		}
		if lost := counters["socket_entry_lost"] + counters["socket_entry_replaced"]; lost != 0 {
			t.Errorf("%d entries are lost or replaced", lost)
		}
		if got := n.socketEntries(); got != slots {
			t.Errorf("%d slots are in use, want all %d", got, slots)
		}
		if got, want := n.storedSockets(), uint32(2*opened-slots); got < want {
			t.Errorf("%d sockets are counted that have entries in their storage, want %d at least", got, want)
		}
		for i := range connected {
			connected[i].close()
			unconnected[i].close()
		}
		if got := n.socketEntries(); got != 0 {
			t.Errorf("all sockets are closed, and %d slots in use", got)
		}
		if got := n.storedSockets(); got != 0 {
			t.Errorf("all sockets are closed, and %d are counted that have entries in their storage", got)
		}
		dialTCP(t, k, at(tcpVIP)) // takes a slot again
		if got := n.socketEntries(); got != 1 {
			t.Errorf("one socket is open, and %d slots in use", got)
		}
	})
}

// storedSockets returns how many sockets are counted that have entries in
// themselves.
func (n *node) storedSockets() (sum uint32) {
	n.tb.Helper()
	var (
		m     = mustPinned(n.tb, filepath.Join(n.cfg.Root, "maps", "stored_sockets"))
		key   uint32
		chunk [16]uint32
	)
	entries := m.Iterate()
	for entries.Next(&key, &chunk) {
		for _, sockets := range chunk {
			sum += sockets
		}
	}
	if err := entries.Err(); err != nil {
		n.tb.Fatal(err)
	}
	return sum
}

// Which slot a socket has depends on the size of the map, and so does where it is
// counted that it has entries in its storage.
func TestEntriesInSocketStorageOutliveAnotherSizeOfTheMap(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		cfg := config(t)
		cfg.SocketEntries = 1
		n := mustNodeOf(t, cfg)
		vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80")
		n.set("web", frontend(vip+"/TCP", mustServe(t, k.pick("10.244.0.1:8080/TCP", "[fd00:244::1]:8080/TCP"))))
		var sockets held
		sockets.tb = t
		for range 5 {
			s, _ := dialTCP(t, k, at(vip))
			sockets.add(s, vip)
		}
		n.dp.Close()
		n.cfg.SocketEntries = 1 << 12
		mustNodeOf(t, n.cfg)
		sockets.wantPeers("with a larger map")
		sockets.close()
	})
}
