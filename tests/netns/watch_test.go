package netns_test

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// forEachForm runs f on a node with passive health: where tracepoints note what becomes of
// connections, and where sock_ops does; with socket NAT entries in the map, and in storage.
func forEachForm(t *testing.T, f func(t *testing.T, n *node)) {
	for _, form := range []string{"tracepoints", "sock_ops"} {
		for place, entries := range map[string]uint32{"map": 1 << 12, "storage": 1} {
			t.Run(form+", entries in the "+place, func(t *testing.T) {
				if form == "tracepoints" && entries == 1 {
					testenv.NeedStorageIterators(t)
				}
				cfg := config(t)
				cfg.EjectAfter, cfg.MaxEjected, cfg.SocketEntries, cfg.SockOps = 2, 50, entries, form == "sock_ops"
				n := mustNodeOf(t, cfg)
				if got := n.status().Failures; !strings.HasPrefix(got, "noted by "+form) {
					t.Errorf("status says that failures are %q, want by %s", got, form)
				}
				f(t, n)
			})
		}
	}
}

// withoutSlots has sockets keep their entries, where there is one slot.
func (n *node) withoutSlots() {
	if n.cfg.SocketEntries == 1 {
		n.takeOnlySlot()
	}
}

// mustFilter has the kernel do something with connections that come to port 8080, until the
// returned function is called.
func mustFilter(t *testing.T, target ...string) (stop func()) {
	t.Helper()
	rule := func(command string) error {
		args := append([]string{"-w", command, "INPUT", "-p", "tcp", "--dport", "8080", "-j"}, target...)
		if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := rule("-A"); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := rule("-D"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// failed says whether the connection of a socket has been refused or has failed otherwise.
func (s *socket) failed() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP != 0
}

// attempts are connections to a backend that takes none.
var attempts = []struct {
	name     string
	filter   []string // what becomes of SYNs; nil: they are refused
	try      func(t *testing.T, failures func() uint64)
	failures uint64
	open     int // in flight before sockets are closed
}{
	{"refused", nil, func(t *testing.T, _ func() uint64) {
		if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at(webOf(inet))); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect: %v", err)
		}
	}, 1, 0},
	{"refused later", nil, func(t *testing.T, _ func() uint64) {
		s := mustBegin(t, at(webOf(inet)))
		eventually(t, "the connection is refused", s.failed)
	}, 1, 0},
	{"refused on all CPUs", nil, func(t *testing.T, _ func() uint64) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { connects(t, 50, at(webOf(inet))) })
		}
		all.Wait()
	}, 200, 0},
	{"refused past the Service", nil, func(t *testing.T, _ func() uint64) {
		if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at("10.244.0.4:8080")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect: %v", err)
		}
	}, 0, 0},
	{"silent", []string{"DROP"}, func(t *testing.T, failures func() uint64) {
		mustBegin(t, at(webOf(inet)))
		eventually(t, "the SYN is sent again", func() bool { return failures() > 0 })
	}, 1, 1},
	{"closed before it is answered", []string{"DROP"}, func(t *testing.T, _ func() uint64) { mustBegin(t, at(webOf(inet))).close() }, 0, 0},
	{"given up before it is answered", []string{"DROP"}, func(t *testing.T, _ func() uint64) {
		s := mustBegin(t, at(webOf(inet)))
		s.disconnect()
		if _, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil { // forgets the error
			t.Error(err)
		}
	}, 0, 0},
	// What ICMP says at once comes while connect() has the socket; of the next SYN it counts.
	{"unreachable", []string{"REJECT", "--reject-with", "icmp-host-prohibited"}, func(t *testing.T, _ func() uint64) {
		s := mustBegin(t, at(webOf(inet)))
		eventually(t, "the connection has failed", s.failed)
	}, 2, 0},
	{"timed out after it was answered", nil, func(t *testing.T, _ func() uint64) {
		listener := mustSocket(t, inet, unix.SOCK_STREAM)
		if err := errors.Join(unix.SetsockoptInt(listener.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(listener.fd, listener.sockaddr(at("10.244.0.4:8080"))), unix.Listen(listener.fd, 1)); err != nil {
			t.Fatal(err)
		}
		s := mustSocket(t, inet, unix.SOCK_STREAM)
		if err := errors.Join(s.connect(at(webOf(inet))), unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 100)); err != nil {
			t.Fatal(err)
		}
		mustFilter(t, "DROP")
		s.send("nobody hears it")
		eventually(t, "the connection has failed", s.failed)
	}, 0, 1},
}

// Each connection fails as often as it does, not more and not less, and is in flight as
// long as it may be answered. An agent that restarts changes nothing of that.
func TestWhatBecomesOfAConnectionIsNotedOnce(t *testing.T) {
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		dead := nobody(t, "10.244.0.4:8080/TCP")
		n.set("web", frontend(webOf(inet)+"/TCP", dead))
		for _, c := range attempts {
			before := n.inForce()
			n = n.restart(false)
			if now := n.inForce(); !maps.Equal(before, now) {
				t.Fatalf("after a restart programs %v are in force, were %v", now, before)
			}
			noted, open := n.status().Counters["backend_failed"], n.load(dead).InFlight
			failures := func() uint64 { return n.status().Counters["backend_failed"] - noted }
			t.Run(c.name, func(t *testing.T) { // which closes its sockets
				if c.filter != nil {
					mustFilter(t, c.filter...)
				}
				c.try(t, failures)
				if got := int(n.load(dead).InFlight - open); got != c.open {
					t.Errorf("%d in flight, want %d", got, c.open)
				}
			})
			if got := failures(); got != c.failures {
				t.Errorf("%s: %d failures are noted, want %d", c.name, got, c.failures)
			}
			if got := n.load(dead).InFlight - open; got != 0 {
				t.Errorf("%s: %d in flight, all sockets are closed", c.name, got)
			}
		}
	})
}

// noteStanding looks for connections that stand, as the agent does every second.
func (n *node) noteStanding() {
	n.tb.Helper()
	if err := n.dp.NoteStanding(); err != nil {
		n.tb.Fatal(err)
	}
}

// isEjected says whether this client avoids a backend.
func (n *node) isEjected(b *backend) bool {
	l := n.load(b)
	return l.Ejected > 0 || l.EjectedByOne > 0
}

// mustEject has connections to a backend refused until it is ejected.
func (n *node) mustEject(t *testing.T, b *backend) {
	t.Helper()
	for range 200 {
		_ = mustSocket(t, inet, unix.SOCK_STREAM).connect(at(webOf(inet)))
		if n.isEjected(b) {
			return
		}
	}
	t.Fatalf("%s is not ejected: %+v", b.name(), n.load(b))
}

// mustListenOnce has a backend take connections; stop closes it but for one that it has
// taken.
func mustListenOnce(t *testing.T, b *backend) (stop func()) {
	t.Helper()
	s := mustSocket(t, inet, unix.SOCK_STREAM)
	if err := errors.Join(unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(s.fd, s.sockaddr(b.addr())), unix.Listen(s.fd, 64)); err != nil {
		t.Fatal(err)
	}
	return func() {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		s.close()
	}
}

// A connection that lasts clears its backend long before it ends, and one from before the
// backend failed clears it neither while it lasts nor when it ends.
func TestALongConnectionClearsItsBackendIfItBeganAfterTheFailure(t *testing.T) {
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		gone := nobody(t, "10.244.0.2:8080/TCP")
		stop := mustListenOnce(t, gone)
		n.set("web", frontend(webOf(inet)+"/TCP", gone))
		old := mustSocket(t, inet, unix.SOCK_STREAM)
		old.mustConnect(at(webOf(inet)))
		stop()
		n.mustEject(t, gone)
		n.noteStanding()
		if !n.isEjected(gone) {
			t.Error("a connection from before the failures clears the backend")
		}
		n = n.restart(false)
		n.noteStanding()
		old.close()
		if !n.isEjected(gone) {
			t.Error("the end of a connection from before the failures clears the backend")
		}
		mustListenOnce(t, gone)
		mustSocket(t, inet, unix.SOCK_STREAM).mustConnect(at(webOf(inet)))
		n.noteStanding()
		if n.isEjected(gone) {
			t.Errorf("a connection that stands does not clear the backend: %+v", n.load(gone))
		}
	})
}

// The end of a connection tells, too: then no agent is needed.
func TestAConnectionThatEndsClearsItsBackend(t *testing.T) {
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		gone := nobody(t, "10.244.0.2:8080/TCP")
		n.set("web", frontend(webOf(inet)+"/TCP", gone))
		n.mustEject(t, gone)
		mustListenOnce(t, gone)
		s := mustSocket(t, inet, unix.SOCK_STREAM)
		s.mustConnect(at(webOf(inet)))
		s.close()
		if l := n.load(gone); n.isEjected(gone) || l.Failures > 0 {
			t.Errorf("a connection that has ended does not clear the backend: %+v", l)
		}
	})
}

// A SYN is lost, and the next one is answered.
func TestAConnectionThatIsAnsweredLateIsNoFailure(t *testing.T) {
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		b := mustServe(t, "10.244.0.2:8080/TCP")
		n.set("web", frontend(webOf(inet)+"/TCP", b))
		stop := mustFilter(t, "DROP")
		s := mustBegin(t, at(webOf(inet)))
		eventually(t, "the failure is noted", func() bool { return n.load(b).Failures == 1 })
		n.noteStanding()
		if got := n.load(b).Failures; got != 1 {
			t.Errorf("%d failures before the answer, want 1", got)
		}
		stop()
		eventually(t, "it is answered", func() bool {
			fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
			ready, err := unix.Poll(fds, 100)
			return err == nil && ready == 1
		})
		n.noteStanding()
		if l := n.load(b); l.Failures > 0 {
			t.Errorf("the connection stands, and the backend is %+v", l)
		}
	})
}

// Clients that lie eject no backend for others that these have connections to.
func TestABackendThatTakesConnectionsIsNotEjectedForAll(t *testing.T) {
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		b := mustServe(t, "10.244.0.1:8080/TCP")
		n.set("web", frontend(webOf(inet)+"/TCP", b))
		others := mustLoad(t, inet, at(webOf(inet)), b)
		for pod := range 4 {
			others.await(3)
			t.Run(fmt.Sprint("pod ", pod), func(t *testing.T) { refusingPod(t, b); wantRefused(t, 30, inet, asItIs) })
		}
		if l := n.load(b); l.Ejected > 0 {
			t.Errorf("the backend takes connections all the while, and is %+v", l)
		}
	})
}

// The last connection that the backend took has ended a moment ago.
func TestABackendThatHasJustTakenAConnectionIsNotEjectedForAll(t *testing.T) {
	const soon = 900 * time.Millisecond // all go by the last second
	forEachForm(t, func(t *testing.T, n *node) {
		n.withoutSlots()
		b := mustServe(t, "10.244.0.1:8080/TCP")
		n.set("web", frontend(webOf(inet)+"/TCP", b))
		for quick := false; !quick; {
			time.Sleep(100 * time.Millisecond) // so that it is news
			connects(t, 1, at(webOf(inet)))
			began := time.Now()
			for pod := range 3 {
				t.Run(fmt.Sprint("pod ", pod), func(t *testing.T) { refusingPod(t, b); wantRefused(t, 5, inet, asItIs) })
			}
			l := n.load(b)
			if quick = time.Since(began) < soon; quick && l.Ejected > 0 {
				t.Errorf("the backend has just taken a connection, and is %+v", l)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		t.Run("pod", func(t *testing.T) { refusingPod(t, b); wantRefused(t, 5, inet, asItIs) })
		if l := n.load(b); l.Ejected == 0 {
			t.Errorf("several say that the backend takes no connections, and it is %+v", l)
		}
	})
}

// What an agent finds in force that notes failures in the other way ends.
func TestWhatNotesFailuresIsReplacedInPlace(t *testing.T) {
	tracers := []string{"socket_error", "tcp_destroy", "tcp_retransmit"}
	n := mustNode(t)
	web := mustServe(t, "10.244.0.1:8080/TCP")
	n.set("web", frontend(webOf(inet)+"/TCP", web))
	l := mustLoad(t, inet, at(webOf(inet)), web)
	for _, sockOps := range []bool{true, false} {
		before := n.inForce()
		n.cfg.SockOps = sockOps
		n.dp.Close()
		n = mustNodeOf(t, n.cfg)
		now := n.inForce()
		for _, name := range tracers {
			if _, there := now[name]; there == sockOps {
				t.Errorf("with sock_ops %v %s is pinned: %v", sockOps, name, there)
			}
			if id, was := before[name]; was && sockOps {
				eventually(t, name+" is in force no more", func() bool { return !isLinked(uint32(id)) })
			}
		}
		if _, there := now["sock_ops"]; there != sockOps {
			t.Errorf("with sock_ops %v it is pinned: %v", sockOps, there)
		}
		l.await(20)
	}
	l.wantNoFailure()
	now := n.inForce()
	n.dp.Close()
	if err := datapath.Cleanup(n.cfg.Root); err != nil {
		t.Fatal(err)
	}
	for _, name := range tracers {
		eventually(t, name+" is cleaned up", func() bool { return !isLinked(uint32(now[name])) })
	}
}

// isLinked says whether any link has the program with an ID.
func isLinked(program uint32) bool {
	links := &link.Iterator{}
	defer links.Close()
	for links.Next() {
		if info, err := links.Link.Info(); err == nil && uint32(info.Program) == program {
			return true
		}
	}
	return false
}
