package netns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// refusingPod enters a network namespace in which the addresses of backends are its
// own, so that it is refused as often as it likes, until the test ends.
func refusingPod(t *testing.T, backends ...*backend) {
	t.Helper()
	testenv.EnterNetns(t)
	for _, b := range backends {
		testenv.AddAddress(t, b.at.Addr.String())
	}
}

// wantRefused opens connections that are refused.
func wantRefused(t *testing.T, n int, k kind, prepare func(fd int) error) {
	t.Helper()
	for range n {
		s := mustSocket(t, k, unix.SOCK_STREAM)
		if err := prepare(s.fd); err != nil {
			t.Fatal(err)
		}
		if err := s.connect(at(webOf(k))); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("a connection in the pod ended with %v, want that it is refused", err)
		}
		s.close()
	}
}

func asItIs(int) error { return nil }

// votingNode is a node with two backends that are well.
func votingNode(t *testing.T) (n *node, a, b *backend) {
	t.Helper()
	n = healthNode(t)
	a, b = mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", a, b))
	return n, a, b
}

func TestWhatOnePodSaysDoesNotEjectForOthers(t *testing.T) {
	n, a, b := votingNode(t)
	t.Run("in the pod", func(t *testing.T) {
		refusingPod(t, a, b)
		wantRefused(t, 50, inet, asItIs)
	})
	if c := n.status().Counters; c["backend_failed"] != 50 || c["backend_ejected"] == 0 {
		t.Errorf("to the pod itself both should be ejected: %v", c)
	}
	took, refused := connects(t, 200, at("10.96.0.1:80"))
	if refused > 0 || took[a.name()] < 50 || took[b.name()] < 50 {
		t.Errorf("another client's connections went to %v, and %d were refused; want about 100 to each", took, refused)
	}
}

// load is how a backend is, as far as the node knows.
func (n *node) load(b *backend) (l datapath.Load) {
	n.tb.Helper()
	id := n.backendID(b)
	n.inspect(func(i *datapath.Reader) error { l = i.Backend(id).Load; return nil })
	return l
}

// Each pod is a client of its own, and nobody has ever had a connection. What one alone
// says is told apart from what all go by.
func TestWhatSeveralPodsSayEjectsForAll(t *testing.T) {
	n, a, b := votingNode(t)
	for pods := 1; pods <= 3; pods++ {
		t.Run(fmt.Sprint("pod ", pods), func(t *testing.T) {
			refusingPod(t, a, b)
			wantRefused(t, 30, inet, asItIs)
		})
		for _, of := range []*backend{a, b} {
			l := n.load(of)
			if toAll, toOne := l.Ejected > 0, l.EjectedByOne > 0; toAll != (pods > 1) || toOne == toAll {
				t.Errorf("%d pods say that %s does not take connections: it is %+v", pods, of.name(), l)
			}
		}
	}
}

// A program can see to it that its connections fail. Sockets with which it can
// without a network of its own have no vote.
func TestSocketsWhoseAnswersNeverComeHaveNoVote(t *testing.T) {
	pass := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff}}
	ttl := func(level, option int) func(int) error {
		return func(fd int) error { return unix.SetsockoptInt(fd, level, option, 3) }
	}
	filter := func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &pass[0]})
	}
	n, a, b := votingNode(t)
	six := mustServe(t, "[fd00:244::1]:8080/TCP")
	n.set("six", frontend(webOf(inet6)+"/TCP", six))
	for _, c := range []struct {
		name    string
		kind    kind
		prepare func(fd int) error
		want    uint64 // failures
	}{
		{"plain", inet, asItIs, 20},
		{"plain", inet6, asItIs, 20},
		{"plain", mapped, asItIs, 20},
		{"bound to a device", inet, func(fd int) error { return unix.BindToDevice(fd, "lo") }, 0},
		{"with a TTL of its own", inet, ttl(unix.IPPROTO_IP, unix.IP_TTL), 0},
		{"with a TTL of its own", mapped, ttl(unix.IPPROTO_IP, unix.IP_TTL), 0},
		{"with a hop limit of its own", inet6, ttl(unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS), 0},
		{"with a filter", inet, filter, 0},
	} {
		t.Run(c.name+" "+c.kind.name, func(t *testing.T) {
			refusingPod(t, a, b, six)
			before := n.status().Counters["backend_failed"]
			wantRefused(t, 20, c.kind, c.prepare)
			if got := n.status().Counters["backend_failed"] - before; got != c.want {
				t.Errorf("%d failures were noted, want %d", got, c.want)
			}
		})
	}
}

// namespaceOf enters a network namespace that a user made, with users of its own, and
// in which the addresses of backends are its own.
func namespaceOf(t testing.TB, uid uint32, backends ...*backend) {
	t.Helper()
	testenv.EnterNetns(t)
	home := mustReadlink(t, "/proc/thread-self/ns/user")
	maker := exec.Command("unshare", "--user", "--map-root-user", "--net", "sleep", "600")
	maker.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: unix.SIGKILL}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = maker.Process.Kill(); _ = maker.Wait() })
	dir := fmt.Sprintf("/proc/%d/ns/", maker.Process.Pid)
	net := mustReadlink(t, "/proc/thread-self/ns/net")
	eventually(t, "there is a namespace", func() bool {
		return mustReadlink(t, dir+"user") != home && mustReadlink(t, dir+"net") != net
	})
	ns, err := unix.Open(dir+"net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	testenv.LoopbackUp(t)
	for _, b := range backends {
		testenv.AddAddress(t, b.at.Addr.String())
	}
}

func mustReadlink(t testing.TB, path string) string {
	t.Helper()
	to, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Any process may make namespaces with users of its own, as many as it likes. Those of
// pods with users of their own are made by root.
func TestNamespacesOfUsersSpeakForThemselvesAlone(t *testing.T) {
	const nobody = 65534
	for _, c := range []struct {
		name   string
		uid    uint32
		others bool // does it speak for others?
	}{{"made by root", 0, true}, {"made by another user", nobody, false}} {
		t.Run(c.name, func(t *testing.T) {
			n, a, b := votingNode(t)
			for i := range 3 {
				t.Run(fmt.Sprint("namespace ", i), func(t *testing.T) {
					namespaceOf(t, c.uid, a, b)
					wantRefused(t, 30, inet, asItIs)
					if l := n.load(a); l.EjectedByOne == 0 && l.Ejected == 0 {
						t.Errorf("who is refused should avoid the backend at least for itself: %+v", l)
					}
				})
			}
			if l := n.load(a); l.Ejected > 0 != c.others {
				t.Errorf("after three of them were refused the backend is %+v; ejected for all: want %v", l, c.others)
			}
			for i := range 2 {
				t.Run(fmt.Sprint("pod ", i), func(t *testing.T) { refusingPod(t, a, b); wantRefused(t, 30, inet, asItIs) })
			}
			t.Run("what answers there", func(t *testing.T) {
				namespaceOf(t, c.uid)
				mustServe(t, a.at.String())
				mustServe(t, b.at.String())
				connects(t, 30, at(webOf(inet)))
			})
			if both := (n.load(a).Ejected > 0) && (n.load(b).Ejected > 0); both == c.others {
				t.Errorf("ejected for all are %+v and %+v; a success there should clear one of them: %v", n.load(a), n.load(b), c.others)
			}
		})
	}
}
