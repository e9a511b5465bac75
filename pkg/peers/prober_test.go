package peers

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// patience is how long tests wait, by the time of their bubble.
const patience = time.Minute

// node is the prober of a node, in a network of its kind.
type node struct {
	*testing.T
	prober   *Prober
	reports  chan []Status
	filtered atomic.Bool // its device drops what is carried

	mu       sync.Mutex
	until    time.Time                // it answers questions
	other    bool                     // and carries otherwise than those that ask
	absent   bool                     // its peers are not in force
	rounds   map[[2]netip.Addr]*round // by both addresses
	resolved int
	others   map[netip.Addr]*node
}

// round is what the datapath has of the questions to a peer.
type round struct {
	nonce uint64
	back  plan.Echoes
}

// newNode returns a node that has another one, there, as the home of what is carried.
func newNode(t *testing.T, name string) *node {
	t.Helper()
	n := &node{T: t, reports: make(chan []Status, 1000), others: map[netip.Addr]*node{}, rounds: map[[2]netip.Addr]*round{}}
	n.prober = New(Config{
		Here:       name,
		MTU:        func(netip.Addr) uint32 { return 1500 },
		Filtered:   func(netip.Addr) string { return map[bool]string{true: "vxlan0"}[n.filtered.Load()] },
		Counts:     func() map[netip.Addr]Counts { return nil },
		Former:     func() map[netip.Addr]plan.Peer { return nil },
		Device:     func(netip.Addr) uint32 { return 7 },
		Answer:     n.answer,
		Ask:        n.ask,
		Resolve:    func(_, _ netip.Addr) { n.mu.Lock(); n.resolved++; n.mu.Unlock() },
		TakeEchoes: n.take,
		Notify:     func(string, map[string]plan.Node) {},
		Report:     func(all []Status) { n.reports <- all },
	})
	n.prober.SetFrontends(lb.ServiceName{Namespace: "default", Name: "web"}, []lb.Frontend{{
		Carried: true, Homes: map[lb.AddrPort]string{{Addr: netip.MustParseAddr("10.244.1.2"), Port: 80, Protocol: lb.TCP}: "there"},
	}})
	return n
}

func (n *node) answer(during time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.until = time.Now().Add(during)
}

func (n *node) answersUntil() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.until
}

func (n *node) ask(e plan.Echo) bool {
	if e.Device != 7 {
		n.Errorf("asked from device %d", e.Device)
	}
	other := n.others[e.Peer]
	answers, unlike := other != nil && time.Now().Before(other.answersUntil()), false
	if answers {
		other.mu.Lock()
		unlike = other.other
		other.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.absent {
		return false
	}
	key := [2]netip.Addr{e.Peer, e.Ours}
	if r := n.rounds[key]; r == nil || r.nonce != e.Nonce {
		n.rounds[key] = &round{nonce: e.Nonce}
	}
	if answers {
		n.rounds[key].back.Questions |= 1 << e.Question
		n.rounds[key].back.Unlike = unlike
	}
	return true
}

func (n *node) take(theirs, ours netip.Addr) (e plan.Echoes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.rounds[[2]netip.Addr{theirs, ours}]; r != nil {
		e, r.back = r.back, e
	}
	return e
}

// run has the prober of a node that is ready ask until the test ends, or what it returns is called.
func (n *node) run() (stop func()) {
	ready := make(chan struct{})
	close(ready)
	return n.runFrom(ready)
}

func (n *node) runFrom(ready <-chan struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.prober.Run(ctx, ready)
	}()
	stop = func() { cancel(); <-ended }
	n.Cleanup(stop)
	return stop
}

func nodeAt(addr string) *lb.Node { return &lb.Node{IP4: netip.MustParseAddr(addr)} }

// newPair returns two nodes that reach each other.
func newPair(t *testing.T) (here, there *node) {
	t.Helper()
	both := map[string]*lb.Node{"here": nodeAt("192.0.2.1"), "there": nodeAt("192.0.2.2")}
	here, there = newNode(t, "here"), newNode(t, "there")
	here.others[both["there"].IP4] = there
	for _, n := range []*node{here, there} {
		n.prober.SetNodes(both)
	}
	return here, there
}

// says waits until the prober says something of its problems.
func (n *node) says(what string, is func(problems string) bool) {
	n.Helper()
	var said string
	for end := time.After(patience); ; {
		var lines []string
		for _, p := range n.prober.Problems() {
			lines = append(lines, p.Error())
		}
		if said = strings.Join(lines, "\n"); is(said) {
			return
		}
		select {
		case <-n.reports:
		case <-end:
			n.Fatalf("%s is not said, but: %s", what, said)
		}
	}
}

func has(part string) func(string) bool {
	return func(s string) bool { return strings.Contains(s, part) }
}

// well says that there are no problems.
func well(problems string) bool { return problems == "" }

// A node asks another one, whose agent has it answer for ten minutes, and looks for the next hop to one that
// does not answer.
func TestNodesAskEachOther(t *testing.T) { synctest.Test(t, nodesAskEachOther) }

func nodesAskEachOther(t *testing.T) {
	here, there := newPair(t)
	here.run()
	here.says("that nothing comes back", has("does not answer"))
	here.mu.Lock()
	if here.resolved < missing-1 {
		t.Errorf("looked %d times for the next hop", here.resolved)
	}
	here.mu.Unlock()
	stop := there.run()
	here.says("that all is well", well)
	stop()
	if left := time.Until(there.answersUntil()); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("without its agent it answers for %s", left)
	}
	here.prober.SetNodes(map[string]*lb.Node{"there": {}})
	here.says("that a node without address is none", has("from Node here: it has no InternalIP of a family"))
}

// Without Node objects nothing is carried, as from a folder that has none: the agent reports it.
func TestNodesWithoutObjectsAreReported(t *testing.T) {
	synctest.Test(t, nodesWithoutObjectsAreReported)
}

func nodesWithoutObjectsAreReported(t *testing.T) {
	here, told := newNode(t, "here"), atomic.Bool{}
	here.prober.cfg.Notify = func(string, map[string]plan.Node) { told.Store(true) }
	here.run()
	reported := func(want string) {
		t.Helper()
		select {
		case <-here.reports:
		case <-time.After(patience):
			t.Fatal("nothing is reported")
		}
		here.says(want, has(want))
	}
	reported("this node has no InternalIP; give the Node here an InternalIP in status.addresses")
	if told.Load() {
		t.Error("peers are told of, and there are none")
	}
	here.prober.SetNodes(map[string]*lb.Node{"here": nodeAt("192.0.2.1")})
	reported("it has no InternalIP of a family that this node has; give the Node there an InternalIP in status.addresses")
}

// TestANodeWhoseDeviceFiltersDoesNotAnswer has the filter set to loose after a while, and to strict again.
func TestANodeWhoseDeviceFiltersDoesNotAnswer(t *testing.T) {
	synctest.Test(t, aNodeWhoseDeviceFiltersDoesNotAnswer)
}

func aNodeWhoseDeviceFiltersDoesNotAnswer(t *testing.T) {
	here, there := newPair(t)
	there.filtered.Store(true)
	here.run()
	there.run()
	for range 2 {
		there.says("what helps", has("set net.ipv4.conf.vxlan0.rp_filter to 2"))
		here.says("that it does not answer", has("does not answer"))
		there.filtered.Store(false)
		here.says("that all is well", well)
		there.says("that all is well", func(said string) bool { return !strings.Contains(said, "rp_filter") })
		there.filtered.Store(true)
	}
}

// A home that carries otherwise is named; peers that are not in force tell nothing.
func TestOtherHomesAreNamed(t *testing.T) { synctest.Test(t, otherHomesAreNamed) }

func otherHomesAreNamed(t *testing.T) {
	here, there := newPair(t)
	there.other = true
	here.run()
	there.run()
	here.says("that keys differ", has("hashes by another key"))
	there.mu.Lock()
	there.other = false
	there.mu.Unlock()
	here.says("that all is well", well)
	here.mu.Lock()
	here.absent = true
	here.mu.Unlock()
	time.Sleep(time.Minute)
	here.says("that all is well while nothing is in force", well)
}

// The tables of a former agent are not kept in force by one that does not get ready.
func TestANodeThatIsNotReadyDoesNotAnswer(t *testing.T) {
	synctest.Test(t, aNodeThatIsNotReadyDoesNotAnswer)
}

func aNodeThatIsNotReadyDoesNotAnswer(t *testing.T) {
	_, there := newPair(t)
	ready := make(chan struct{})
	there.runFrom(ready)
	time.Sleep(time.Minute)
	if until := there.answersUntil(); !until.IsZero() {
		t.Errorf("it answers until %s", until)
	}
	close(ready)
	time.Sleep(Tick + time.Millisecond)
	if time.Until(there.answersUntil()) < 9*time.Minute {
		t.Error("ready, it does not answer")
	}
}

// A node that would lose what is carried does not answer before its own Node is known, and at once from then on.
func TestANodeThatIsNotKnownDoesNotAnswer(t *testing.T) {
	synctest.Test(t, aNodeThatIsNotKnownDoesNotAnswer)
}

func aNodeThatIsNotKnownDoesNotAnswer(t *testing.T) {
	n := newNode(t, "here")
	n.filtered.Store(true)
	n.run()
	time.Sleep(3*calm + calm/2) // between two looks at filters
	if until := n.answersUntil(); !until.IsZero() {
		t.Errorf("unknown, it answers until %s", until)
	}
	n.filtered.Store(false)
	n.prober.SetNodes(map[string]*lb.Node{"here": nodeAt("192.0.2.1")})
	time.Sleep(Tick)
	if time.Until(n.answersUntil()) < 9*time.Minute {
		t.Error("known, it does not answer")
	}
	n.filtered.Store(true)
	n.prober.SetNodes(map[string]*lb.Node{"here": nodeAt("192.0.2.3")})
	time.Sleep(Tick)
	if until := n.answersUntil(); until.After(time.Now()) {
		t.Errorf("with an address of a device that filters it answers until %s", until)
	}
}

// A home of another version would reset connections that it does not know, so that nobody is left
// out of their search while there is one.
func TestNobodyIsLeftOutWhileVersionsDiffer(t *testing.T) {
	dead, other := newWorld(true), newWorld(true)
	dead.way.passes = 0
	dead.pass(time.Minute, nil)
	a := &asked{peer: other.peer, isHome: true}
	var told map[string]plan.Node
	p := New(Config{Here: "here", Notify: func(_ string, all map[string]plan.Node) { told = all }, Report: func([]Status) {}})
	p.peers = map[string]*asked{"dead": {peer: dead.peer, isHome: true}, "other": a}
	for _, step := range []struct {
		when         string
		do           func()
		silent, dead bool // the other one, and the dead one
	}{
		{"carries alike", func() {}, false, true},
		{"carries otherwise", func() { other.way.other = true }, false, false},
		{"is no home any more", func() { a.isHome = false }, false, true},
		{"is a home again", func() { a.isHome = true }, false, false},
		{"is silent, too", func() { other.way.passes = 0 }, false, false},
		{"was brought to this version", func() { other.way.passes, other.way.other = 1500, false }, false, true},
		{"is silent", func() { other.way.passes = 0 }, true, true},
	} {
		step.do()
		other.pass(time.Minute, nil)
		p.tell()
		if got := told["other"].Silent; got != step.silent {
			t.Errorf("the other node %s: it is left out: %v, want %v", step.when, got, step.silent)
		}
		if got := told["dead"].Silent; got != step.dead {
			t.Errorf("the other node %s: the dead one is left out: %v, want %v", step.when, got, step.dead)
		}
	}
}

// Nodes carry alike by the whole key of hashes.
func TestWhatIsEqualOnNodesIsOfTheWholeKey(t *testing.T) {
	seen := map[uint64][2]uint64{}
	for _, key := range [][2]uint64{{}, {1}, {0, 1}, {1, 1}} {
		if other, there := seen[Alike(key)]; there {
			t.Errorf("%v and %v carry alike", key, other)
		}
		seen[Alike(key)] = key
	}
}

// The outer header is of one family that both nodes have, of IPv4 where nobody chooses.
func TestTheOuterFamilyIsOneOfBothNodes(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	both, only4, only6 := lb.Node{IP4: four, IP6: six}, lb.Node{IP4: four}, lb.Node{IP6: six}
	for _, c := range []struct {
		from, to lb.Node
		ipv6     bool
		want     netip.Addr
	}{
		{both, both, false, four}, {both, both, true, six},
		{both, only4, true, four}, {only4, both, true, four}, {both, only6, false, six}, {only6, both, false, six},
		{only4, only6, true, netip.Addr{}}, {only6, only4, false, netip.Addr{}},
	} {
		if ours, theirs := New(Config{IPv6: c.ipv6}).between(c.from, c.to); ours != c.want || theirs != c.want {
			t.Errorf("from %v to %v, IPv6 chosen: %v: from %s to %s, want %s", c.from, c.to, c.ipv6, ours, theirs, c.want)
		}
	}
}
