package netns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// programs are the names of the pinned links, sorted.
var programs = slices.Sorted(slices.Values(replaceOrder))

// inForce is the IDs of the programs behind the links.
func (n *node) inForce() map[string]ebpf.ProgramID {
	n.tb.Helper()
	pins, err := os.ReadDir(n.path("links"))
	if err != nil {
		n.tb.Fatal(err)
	}
	out := map[string]ebpf.ProgramID{}
	for _, pin := range pins {
		out[pin.Name()] = n.linkInfo(pin.Name()).Program
	}
	return out
}

func (n *node) linkInfo(name string) *link.Info {
	n.tb.Helper()
	l, err := link.LoadPinnedLink(filepath.Join(n.cfg.Root, "links", name), nil)
	if err != nil {
		n.tb.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		n.tb.Fatal(err)
	}
	return info
}

// held are sockets that got a backend of a Service before something happened.
type held struct {
	tb      testing.TB
	sockets []*socket
	vips    []netip.AddrPort
}

// hold opens some sockets of each kind and protocol.
func (h *held) hold(tcp, udp func(kind) string, count int) {
	h.tb.Helper()
	for range count {
		for _, k := range kinds {
			s, _ := dialTCP(h.tb, k, at(tcp(k)))
			h.add(s, tcp(k))
			c := mustSocket(h.tb, k, unix.SOCK_DGRAM)
			c.mustConnect(at(udp(k)))
			h.add(c, udp(k))
		}
	}
}

func (h *held) add(s *socket, vip string) {
	h.sockets, h.vips = append(h.sockets, s), append(h.vips, at(vip))
}

func (h *held) wantPeers(when string) {
	h.tb.Helper()
	for i, s := range h.sockets {
		s.wantPeer(h.vips[i], fmt.Sprintf("%s: socket %d", when, i))
	}
}

func (h *held) close() {
	for _, s := range h.sockets {
		s.close()
	}
}

// stage is a node with Services of both families and protocols.
type stage struct {
	n   *node
	web []*backend // of TCP over IPv4
}

func webOf(k kind) string { return k.pick("10.96.0.1:80", "[fd00:96::1]:80") }
func dnsOf(k kind) string { return udpVIP(k, 1) }

func mustStage(t *testing.T) *stage {
	t.Helper()
	return mustStageOf(t, 1<<12)
}

// mustStageOf is a stage whose socket_nat map has a size.
func mustStageOf(t *testing.T, entries uint32) *stage {
	t.Helper()
	cfg := config(t)
	cfg.SocketEntries = entries
	n := mustNodeOf(t, cfg)
	web := []*backend{mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")}
	n.set("web", frontend(webOf(inet)+"/TCP", web...), frontend(webOf(inet6)+"/TCP", mustServe(t, "[fd00:244::1]:8080/TCP")))
	n.set("dns", frontend(dnsOf(inet), udpBackend(t, inet, 1)), frontend(dnsOf(inet6), udpBackend(t, inet6, 1)))
	n.set("empty", frontend("10.96.0.9:80/TCP"))
	n.sweep()
	if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at("10.96.0.9:80")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("connect to a Service without endpoints: %v", err)
	}
	return &stage{n: n, web: web}
}

// reopen is what a new process does.
func (s *stage) reopen() *node {
	s.n.tb.Helper()
	s.n.dp.Close()
	return mustOpen(s.n.tb, s.n.cfg)
}

func TestAnObjectWithAnotherLayoutIsUpgradedInPlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots uint32
		other []replacement
	}{
		// Slots for all: an entry in socket storage does not come along to another layout.
		{"other names and another layout", 1 << 16, otherLayout},
		{"other names, and entries in socket storage", 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) { testUpgrade(t, mustStageOf(t, c.slots), buildVariant(t, c.other...)) })
	}
}

// testUpgrade replaces a variant while sockets connect and talk.
func testUpgrade(t *testing.T, s *stage, variant *ebpf.CollectionSpec) {
	t.Helper()
	content := s.n.content().String()
	s.n.dp.Close()
	downgrade(t, s.n, variant)
	before := s.n.inForce()
	before4 := s.n.linkInfo("connect4").ID
	sockets, brief := &held{tb: t}, &held{tb: t}
	sockets.hold(webOf, dnsOf, 5)
	brief.hold(webOf, dnsOf, 5)
	sockets.wantPeers("under the variant")
	l := mustLoad(t, inet, at(webOf(inet)), s.web...)
	l.await(50)

	n := mustOpen(t, s.n.cfg)
	sockets.hold(webOf, dnsOf, 5) // by programs that are on their way out
	brief.close()
	if diff := cmp.Diff(before, n.inForce()); diff != "" {
		t.Errorf("open alone changed programs (-before +now):\n%s", diff)
	}
	if err := n.dp.Attach(); err != nil {
		t.Fatal(err)
	}
	sockets.wantPeers("upgraded")
	l.await(50)
	l.wantNoFailure()
	if diff := cmp.Diff(content, n.content().String()); diff != "" {
		t.Errorf("content (-before +after):\n%s", diff)
	}
	if got := n.drops("empty"); got["no_endpoint"] != 1 {
		t.Errorf("the Service has drops %v, want the one from before", got)
	}
	for name, id := range n.inForce() {
		if id == before[name] {
			t.Errorf("at %s the old program is in force", name)
		}
	}
	if got := n.linkInfo("connect4").ID; got != before4 {
		t.Errorf("connect4 has link %d, was %d: there was a gap", got, before4)
	}
	sockets.close()
	if got := n.socketEntries(); got != 0 {
		t.Errorf("all sockets are closed, and %d entries in use", got)
	}
	wantUsable(t, n)
}

// A backend refuses connections, which a probe has found out, while the object is
// replaced. What another version did not note has to be found out again.
func TestABackendIsEjectedAfterAnUpgradeAsBefore(t *testing.T) {
	for _, c := range []struct {
		name        string
		other       []replacement
		least, most int // refused connections
	}{
		{"from another layout", otherLayout, 0, 0},
		{"from one that does not say who avoids a backend", append(otherLayout, withoutEjection), 1, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			variant := buildVariant(t, c.other...)
			n := healthNode(t)
			dead, good := nobody(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
			n.set("web", frontend(webOf(inet)+"/TCP", dead, good))
			n.eject(dead, true, time.Hour)
			n.dp.Close()
			downgrade(t, n, variant)
			n = mustNodeOf(t, n.cfg)
			load := n.load(dead)
			if isOne := load.Ejected > 0; isOne != (c.most == 0) {
				t.Errorf("the backend is %+v after the upgrade", load)
			}
			if took, refused := connects(t, 100, at(webOf(inet))); refused < c.least || refused > c.most {
				t.Errorf("%d connections of 100 were refused, want %d to %d; the others went to %v", refused, c.least, c.most, took)
			}
		})
	}
}

// wantUsable checks that a node takes changes and balances.
func wantUsable(t *testing.T, n *node) {
	t.Helper()
	b := mustServe(t, "10.244.0.77:8080/TCP")
	n.set("new", frontend("10.96.0.77:80/TCP", b))
	if _, who := dialTCP(t, inet, at("10.96.0.77:80")); who != b.name() {
		t.Errorf("%q answers for a new Service, want %q", who, b.name())
	}
	n.set("new")
	n.sweep()
}

// The socket_nat map has another size, and everything else stays.
func TestAChangedConstantIsAnUpgradeInPlace(t *testing.T) {
	s := mustStage(t)
	sockets, brief := &held{tb: t}, &held{tb: t}
	sockets.hold(webOf, dnsOf, 5)
	brief.hold(webOf, dnsOf, 5)
	l := mustLoad(t, inet, at(webOf(inet)), s.web...)
	s.n.cfg.SocketEntries *= 4
	n := s.reopen()
	brief.close()
	sockets.hold(webOf, dnsOf, 5)
	if err := n.dp.Attach(); err != nil {
		t.Fatal(err)
	}
	l.await(50)
	l.wantNoFailure()
	sockets.wantPeers("with more entries")
	sockets.close()
	if got := n.socketEntries(); got != 0 {
		t.Errorf("all sockets are closed, and %d entries in use", got)
	}
}

// Programs of two versions are in force for a moment, and one may have to show
// the frontend of an entry that the other has made.
func TestNobodySeesABackendDuringAnUpgrade(t *testing.T) {
	s := mustStage(t)
	for range 10 {
		l := mustHammer(t, inet, at(webOf(inet)), s.web...)
		l.await(100)
		s.n.cfg.SocketEntries ^= 1<<12 | 1<<13
		s.n = s.reopen()
		if err := s.n.dp.Attach(); err != nil {
			t.Fatal(err)
		}
		l.await(100)
		l.wantNoFailure()
	}
}
