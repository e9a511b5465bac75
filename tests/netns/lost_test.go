package netns_test

import (
	"net/netip"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// destroyLost tells sockets of the backends that were lost by what was planned
// since the last call, as the reconciler does.
func (n *node) destroyLost() {
	n.tb.Helper()
	if err := n.dp.DestroySockets(n.planner.TakeLosses()); err != nil {
		n.tb.Fatal(err)
	}
}

// keepNamespace has a process in the network namespace of this thread, by which
// the datapath finds it.
func keepNamespace(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says only that it was killed
	})
}

// talk is a connected socket and the backend that it talks to.
type talk struct {
	s      *socket
	vip    string
	typ    int
	family kind
	with   string
}

// mustTalk connects a socket and learns who answers.
func mustTalk(tb testing.TB, k kind, typ int, vip string) talk {
	tb.Helper()
	s := mustSocket(tb, k, typ)
	s.mustConnect(at(vip))
	if typ == unix.SOCK_DGRAM {
		s.send("who")
	}
	with, _ := s.receive()
	return talk{s, vip, typ, k, with}
}

// wantAlive checks that what a socket sends is answered.
func (c talk) wantAlive(tb testing.TB, when string) {
	tb.Helper()
	if c.s.ended() {
		tb.Errorf("%s: a socket of type %d to %s, with %s, was told that its backend is gone", when, c.typ, c.vip, c.with)
		return
	}
	c.s.send("x")
	c.s.receive()
}

// lostVIPs are the addresses by which the Service of a test is asked for.
var lostVIPs = []struct {
	k       kind
	address string
	pod     bool // whether it means the Service in a pod, too
}{
	{inet, "10.96.0.1:30080", true}, {inet6, "[fd00:96::1]:30080", true}, {mapped, "10.96.0.1:30080", true},
	{inet, "192.0.2.1:30080", true}, {inet6, "[2001:db8::1]:30080", true}, {mapped, "192.0.2.1:30080", true},
	{inet, "127.0.0.1:30080", false}, {inet6, "[::1]:30080", false},
}

// lostBackends are two backends of each family and protocol, in the network
// namespace of this thread.
func lostBackends(t *testing.T) (out []*backend) {
	t.Helper()
	for _, protocol := range []string{"TCP", "UDP"} {
		for _, address := range []string{"10.244.0.1:8080/", "10.244.0.2:8080/", "[fd00:244::1]:8080/", "[fd00:244::2]:8080/"} {
			out = append(out, mustServe(t, address+protocol))
		}
	}
	return out
}

// knowing is a frontend that knows its backends, as Services do.
func knowing(at string, backends ...*backend) lb.Frontend {
	f := frontend(at, backends...)
	f.Members = f.Views[lb.Internal].Backends
	return f
}

// ofFamily returns the backends of a frontend but for the addresses that are gone.
func ofFamily(all []*backend, f string, gone ...string) (out []*backend) {
	want := mustAddrPort(f)
	for _, b := range all {
		left := b.at.Protocol == want.Protocol && b.at.Addr.Is4() == want.Addr.Is4()
		for _, g := range gone {
			left = left && b.at.Addr != netip.MustParseAddr(g)
		}
		if left {
			out = append(out, b)
		}
	}
	return out
}

// setLost makes Service "web" a ClusterIP and a NodePort without the backends that
// are gone.
func (n *node) setLost(all []*backend, gone ...string) {
	n.tb.Helper()
	var frontends []lb.Frontend
	for _, f := range []string{"10.96.0.1:30080/", "[fd00:96::1]:30080/", "0.0.0.0:30080/", "[::]:30080/"} {
		for _, protocol := range []string{"TCP", "UDP"} {
			frontends = append(frontends, knowing(f+protocol, ofFamily(all, f+protocol, gone...)...))
		}
	}
	n.set("web", frontends...)
	n.sweep()
}

// A client may ask for a Service by its own address or, of a NodePort, by one of
// the node: the backend is the same.
func TestOnlySocketsOfTheLostBackendAreTold(t *testing.T) {
	for name, size := range map[string]uint32{"entries in the map": 1 << 12, "entries in socket storage": 1} {
		for _, pod := range []bool{false, true} {
			where := ", from the node"
			if pod {
				where = ", from a pod"
			}
			t.Run(name+where, func(t *testing.T) {
				cfg := config(t)
				cfg.SocketEntries = size
				n := mustNodeOf(t, cfg)
				n.setAddresses(nodeAddresses)
				if pod {
					testenv.EnterNetns(t)
					keepNamespace(t)
				}
				onlySocketsOfTheLostBackend(t, n, pod)
			})
		}
	}
}

func onlySocketsOfTheLostBackend(t *testing.T, n *node, pod bool) {
	all := lostBackends(t)
	other := mustServe(t, "10.244.0.9:8080/TCP")
	n.setLost(all)
	n.set("other", knowing("10.96.0.9:80/TCP", other))
	var talks []talk
	for _, v := range lostVIPs {
		for i := 0; i < 12 && (v.pod || !pod); i++ {
			talks = append(talks, mustTalk(t, v.k, []int{unix.SOCK_STREAM, unix.SOCK_DGRAM}[i%2], v.address))
		}
	}
	aside := mustTalk(t, inet, unix.SOCK_STREAM, "10.96.0.9:80")

	n.set("other")
	n.sweep()
	n.setAddresses(nil) // those that were asked for are the node's no more
	n.destroyLost()
	if !aside.s.ended() {
		t.Error("the socket of the lost backend was not told")
	}
	for _, c := range talks {
		c.wantAlive(t, "another Service has lost its backend")
	}

	n.setAddresses(nodeAddresses)
	n.setLost(all, "10.244.0.1", "fd00:244::1")
	n.destroyLost()
	for _, c := range talks {
		lost := mustAddrPort(c.with).Addr
		if c.typ == unix.SOCK_STREAM && (lost == netip.MustParseAddr("10.244.0.1") || lost == netip.MustParseAddr("fd00:244::1")) {
			if !c.s.ended() {
				t.Errorf("a socket of type %d to %s was not told that its backend %s is gone", c.typ, c.vip, c.with)
			}
			continue
		}
		c.wantAlive(t, "another backend of the Service is gone")
	}
	n.set("web")
	n.sweep()
	n.destroyLost()
	for _, c := range talks {
		// A UDP socket waits if it can: other addresses have no route.
		waits := c.typ == unix.SOCK_DGRAM && at(c.vip).Addr().IsLoopback()
		if waits {
			c.s.wantPeer(at(c.vip), "the Service is gone")
		} else if !c.s.ended() {
			t.Errorf("a socket of type %d to %s was not told that its Service is gone", c.typ, c.vip)
		}
	}
}
