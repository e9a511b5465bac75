package netns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
)

// replaceOrder is the order in which programs are replaced; the first eight stay
// in force beside their successors.
var replaceOrder = []string{
	"sock_release", "getpeername4", "getpeername6", "recvmsg4", "recvmsg6", "tcp_retransmit", "socket_error", "tcp_destroy",
	"sendmsg4", "sendmsg6", "connect4", "connect6",
}

const stayBeside = 8

// generation is a set of maps and programs.
type generation struct {
	maps     map[string]func() (object, error) // and what is pinned beside them
	programs map[string]*ebpf.Program
}

// object is one that can be pinned once more.
type object interface {
	Pin(path string) error
	Close() error
}

// generation returns what is in force.
func (n *node) generation() generation {
	n.tb.Helper()
	g := generation{map[string]func() (object, error){}, map[string]*ebpf.Program{}}
	entries, err := os.ReadDir(n.path("maps"))
	if err != nil {
		n.tb.Fatal(err)
	}
	for _, e := range entries {
		g.maps[e.Name()] = n.opened(n.path("maps", e.Name()))
	}
	for name, id := range n.inForce() {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			n.tb.Fatal(err)
		}
		n.tb.Cleanup(func() { p.Close() })
		g.programs[name] = p
	}
	return g
}

// opened opens what is pinned at a path, and returns what clones it.
func (n *node) opened(path string) func() (object, error) {
	n.tb.Helper()
	if p, err := ebpf.LoadPinnedProgram(path, nil); err == nil {
		n.tb.Cleanup(func() { p.Close() })
		return func() (object, error) { return p.Clone() }
	}
	m := mustPinned(n.tb, path)
	return func() (object, error) { return m.Clone() }
}

func (n *node) path(elements ...string) string {
	return filepath.Join(append([]string{n.cfg.Root}, elements...)...)
}

// pin pins the maps of a generation, or some of them, in place of what is in a
// directory.
func (n *node) pin(g generation, dir string, which pinned) {
	n.tb.Helper()
	if err := os.RemoveAll(n.path(dir)); err != nil {
		n.tb.Fatal(err)
	}
	if which == none {
		return
	}
	if err := os.Mkdir(n.path(dir), 0o700); err != nil {
		n.tb.Fatal(err)
	}
	most := len(g.maps) * int(which) / int(all)
	for name, clone := range g.maps {
		if most--; most < 0 {
			return
		}
		c, err := clone()
		if err != nil {
			n.tb.Fatal(err)
		}
		if err := c.Pin(n.path(dir, name)); err != nil {
			n.tb.Fatal(err)
		}
		c.Close()
	}
}

// attach pins a link of a program under a name of its own: to the cgroup, or to a tracepoint.
func (n *node) attach(hook string, p *ebpf.Program, name string) {
	n.tb.Helper()
	info, err := p.Info()
	if err != nil {
		n.tb.Fatal(err)
	}
	var l link.Link
	if at, ok := attachTypes[hook]; ok {
		l, err = link.AttachCgroup(link.CgroupOptions{Path: n.cfg.Cgroup, Attach: at, Program: p})
	} else {
		l, err = link.AttachTracing(link.TracingOptions{Program: p})
	}
	if err != nil {
		n.tb.Fatalf("attach %s as %s: %v", info.Name, name, err)
	}
	defer l.Close()
	if err := l.Pin(n.path("links", name)); err != nil {
		n.tb.Fatal(err)
	}
}

// replaceProgram puts a program in force in place of the one that is. The link of a
// tracepoint keeps its program: another one takes its place.
func (n *node) replaceProgram(hook string, p *ebpf.Program) {
	n.tb.Helper()
	l := mustLink(n.tb, n.path("links", hook))
	err := l.Update(p)
	l.Close()
	if errors.Is(err, link.ErrNotSupported) {
		err = os.Remove(n.path("links", hook))
		n.attach(hook, p, hook)
	}
	if err != nil {
		n.tb.Fatal(err)
	}
}

var attachTypes = map[string]ebpf.AttachType{
	"sock_release": ebpf.AttachCgroupInetSockRelease,
	"getpeername4": ebpf.AttachCgroupInet4GetPeername, "getpeername6": ebpf.AttachCgroupInet6GetPeername,
	"recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
	"sock_ops": ebpf.AttachCGroupSockOps,
	"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
}

// pinned says how many maps are pinned in a directory.
type pinned int

const (
	none pinned = iota
	half
	all
)

// crash is a state in which a process that replaces one generation by another
// can die.
type crash struct {
	name     string
	next     pinned // maps in next
	replaced int    // programs replaced
	leftover bool   // the link of one more program is attached, but not in its place
	missing  bool   // the link of one more program has been moved aside, and none is in its place
	swapped  bool   // the directories of maps have been swapped
}

// crashes are all such states.
func crashes() []crash {
	out := []crash{
		{name: "before anything"},
		{name: "with some maps pinned", next: half},
		{name: "with all directories swapped", next: all, replaced: len(replaceOrder), swapped: true},
		{name: "with half of the old maps removed", next: half, replaced: len(replaceOrder), swapped: true},
	}
	for i := range len(replaceOrder) + 1 {
		out = append(out, crash{name: fmt.Sprintf("with %d programs replaced", i), next: all, replaced: i})
	}
	for i := range stayBeside {
		out = append(out,
			crash{name: fmt.Sprintf("with %d programs replaced and no maps pinned", i+1), replaced: i + 1},
			crash{name: "with a second " + replaceOrder[i], next: all, replaced: i, leftover: true},
			crash{name: "without " + replaceOrder[i] + " in its place", next: all, replaced: i, leftover: true, missing: true})
	}
	return out
}

// make brings about the state, of a node where the new generation is in force.
func (c crash) make(n *node, old, now generation) {
	n.tb.Helper()
	maps, next := old, now
	if c.swapped {
		maps, next = now, old
	}
	n.pin(maps, "maps", all)
	n.pin(next, "next", c.next)
	for i, name := range replaceOrder {
		switch {
		case i < c.replaced && i < stayBeside:
			n.attach(name, old.programs[name], name+"_1")
		case i < c.replaced:
		default:
			n.replaceProgram(name, old.programs[name])
		}
	}
	if !c.leftover {
		return
	}
	name := replaceOrder[c.replaced]
	n.attach(name, now.programs[name], name+"_next")
	if c.missing {
		if err := os.Rename(n.path("links", name), n.path("links", name+"_1")); err != nil {
			n.tb.Fatal(err)
		}
	}
}

// everyCrash is set to have every state taken up by both kinds of agents, and not by
// one of them in turn.
const everyCrash = "HEADGATE_EVERY_CRASH"

// The states are made by hand, since no process dies at just that moment when
// it is asked to. Loading the object is what takes long, so one node goes through
// all of them: what one agent has put right is replaced by the next, which dies.
func TestAReplacementThatDiedIsTakenUpByTheNextProcess(t *testing.T) {
	// So many that no two sockets of the test have the same slot in either:
	// one of the two would lose its entry where the maps become one.
	sizes := [2]uint32{1 << 16, 1 << 17}
	s := mustStageOf(t, sizes[0])
	s.n.dp.Close()
	for i, c := range crashes() {
		for j, restart := range []string{"the same agent", "the one before"} {
			if os.Getenv(everyCrash) == "" && (i/2+j)%2 == 1 { // a mixture: i counts pairs, too
				continue
			}
			t.Run(c.name+", then "+restart, func(t *testing.T) {
				before := s.n.cfg.SocketEntries
				after := sizes[0] + sizes[1] - before
				next := [2]uint32{after, before}[j]
				s.n = mustTakeUp(t, c, s, after, next)
			})
			if t.Failed() {
				t.Fatal("what comes next goes on from what this has left")
			}
		}
	}
}

// mustTakeUp replaces what is in force by an object with so many entries, has the
// process that does so die, and the next one come with its own number of entries.
func mustTakeUp(t *testing.T, c crash, s *stage, after, next uint32) *node {
	t.Helper()
	sockets, cfg := &held{tb: t}, s.n.cfg
	n := mustNodeOf(t, cfg)
	content, old := n.content().String(), n.generation()
	sockets.hold(webOf, dnsOf, 2)
	n.dp.Close()
	cfg.SocketEntries = after
	n = mustNodeOf(t, cfg)
	now := n.generation()
	if c.replaced > stayBeside { // what makes entries had been replaced in part
		sockets.hold(webOf, dnsOf, 2)
	}
	n.dp.Close()
	c.make(n, old, now)
	l := mustLoad(t, inet, at(webOf(inet)), s.web...)
	sockets.wantPeers("after the crash")
	sockets.hold(webOf, dnsOf, 2)
	l.await(20)

	cfg.SocketEntries = next
	n = mustNodeOf(t, cfg)
	sockets.wantPeers("after the restart")
	sockets.hold(webOf, dnsOf, 2)
	l.await(20)
	l.wantNoFailure()
	if diff := cmp.Diff(content, n.content().String()); diff != "" {
		t.Errorf("content (-before +after):\n%s", diff)
	}
	wantTidy(t, n)
	sockets.close()
	if got := n.socketEntries(); got != 0 {
		t.Errorf("all sockets are closed, and %d entries in use", got)
	}
	wantUsable(t, n)
	n.dp.Close()
	return n
}

// wantTidy checks that nothing is pinned but maps and links, and all of these
// are in force.
func wantTidy(t *testing.T, n *node) {
	t.Helper()
	for dir, want := range map[string][]string{".": {"links", "maps"}, "links": programs} {
		entries, err := os.ReadDir(n.path(dir))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pinned in %s (-want +got):\n%s", dir, diff)
		}
	}
	for _, h := range n.status().Hooks {
		if !h.Attached {
			t.Errorf("hook %s is not attached", h.Name)
		}
	}
}
