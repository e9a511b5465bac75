package netns_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A Multipath TCP socket connects by a socket that the kernel makes below it, which
// is never released by a process.
func TestAMultipathTCPConnectionThatIsClosedLeavesNothing(t *testing.T) {
	for name, size := range map[string]uint32{"entries in the map": 1 << 12, "entries in socket storage": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.SocketEntries = size
			n := mustNodeOf(t, cfg)
			if size == 1 {
				n.takeOnlySlot()
			}
			taken, open := n.socketEntries(), n.allInFlight()
			for _, k := range []kind{inet, inet6} {
				vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80")
				n.set("web", frontend(vip+"/TCP", mustServe(t, k.pick("10.244.0.1:8080/TCP", "[fd00:244::1]:8080/TCP"))))
				var all []*socket
				for range 40 {
					s := mustMultipath(t, k)
					s.mustConnect(at(vip))
					s.receive()
					all = append(all, s)
				}
				if got := n.allInFlight(); got != open+40 {
					t.Errorf("%s: %d are in flight, want 40", k.name, got-open)
				}
				for _, s := range all {
					s.close()
				}
				eventually(t, "nothing is in flight", func() bool { return n.allInFlight() == open })
				if got := n.socketEntries(); got != taken {
					t.Errorf("%s: all connections are closed, and %d slots in use", k.name, got-taken)
				}
				if got := n.storedSockets(); got != 0 {
					t.Errorf("%s: all connections are closed, and %d sockets are counted that have entries in their storage", k.name, got)
				}
			}
		})
	}
}

// mustMultipath makes a Multipath TCP socket, where the kernel has it.
func mustMultipath(t *testing.T, k kind) *socket {
	t.Helper()
	fd, err := unix.Socket(k.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("the kernel has no Multipath TCP")
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{t, fd, k}
	t.Cleanup(s.close)
	return s
}
