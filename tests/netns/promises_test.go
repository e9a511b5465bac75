package netns_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNoPromiseIsLostToOtherSockets(t *testing.T) {
	const slots, opened = 16, 200
	forEachKind(t, func(t *testing.T, k kind) {
		cfg := config(t)
		cfg.Promises = slots
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
		if got := counters["promise_stored"]; got < 2*opened-slots {
			t.Errorf("%d promises are kept in socket storage, want %d at least", got, 2*opened-slots)
		}
		if lost := counters["promise_lost"] + counters["promise_replaced"]; lost != 0 {
			t.Errorf("%d promises are lost or replaced", lost)
		}
		if got := n.promises(); got != slots {
			t.Errorf("%d slots are in use, want all %d", got, slots)
		}
		for i := range connected {
			connected[i].close()
			unconnected[i].close()
		}
		if got := n.promises(); got != 0 {
			t.Errorf("all sockets are closed, and %d slots in use", got)
		}
		dialTCP(t, k, at(tcpVIP)) // takes a slot again
		if got := n.promises(); got != 1 {
			t.Errorf("one socket is open, and %d slots in use", got)
		}
	})
}
