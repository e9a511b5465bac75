package peers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// patience is how long tests wait for what comes soon.
const patience = 20 * time.Second

// node is the prober of a node.
type node struct {
	*testing.T
	prober   *Prober
	reports  chan []Status
	filtered atomic.Bool // its device drops what is carried
}

// newNode returns a node that has another one, there, as the home of what is carried.
func newNode(t *testing.T, name string, port uint16) *node {
	t.Helper()
	n := &node{T: t, reports: make(chan []Status, 1000)}
	n.prober = New(Config{
		Here: name, Port: port,
		MTU:        func(netip.Addr) uint32 { return 1500 },
		Filtered:   func(netip.Addr) string { return map[bool]string{true: "vxlan0"}[n.filtered.Load()] },
		Counts:     func() map[netip.Addr]Counts { return nil },
		Former:     func() map[netip.Addr]plan.Peer { return nil },
		Echoes:     func() bool { return false },
		Ask:        func(plan.Echo) bool { return false }, // so that echoes tell nothing
		TakeEchoes: func(netip.Addr) uint64 { return 0 },
		Notify:     func(string, map[string]plan.Node) {},
		Report:     func(all []Status) { n.reports <- all },
	})
	n.prober.SetFrontends(lb.ServiceName{Namespace: "default", Name: "web"}, []lb.Frontend{{
		Carried: true, Homes: map[lb.AddrPort]string{{Addr: netip.MustParseAddr("10.244.1.2"), Port: 80, Protocol: lb.TCP}: "there"},
	}})
	return n
}

// run has the prober ask until the test ends.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.prober.Run(ctx)
	}()
	n.Cleanup(func() { cancel(); <-ended })
}

func nodeAt(addr string) *lb.Node { return &lb.Node{IP4: netip.MustParseAddr(addr)} }

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

// not is what is true where something is not.
func not(is func(string) bool) func(string) bool { return func(s string) bool { return !is(s) } }

// freePort returns a port that nobody has at any address.
func freePort(t *testing.T) uint16 {
	t.Helper()
	conn := takePort(t)
	conn.Close()
	return portOf(conn)
}

// takePort takes a port at all addresses.
func takePort(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func portOf(conn *net.UDPConn) uint16 { return conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// well says that there are no problems.
func well(problems string) bool { return problems == "" }

// Two nodes with addresses of one device ask each other: each answers by the one that was asked.
func TestNodesAskEachOther(t *testing.T) {
	for _, sendsBack := range []bool{false, true} {
		port := freePort(t)
		both := map[string]*lb.Node{"here": nodeAt("127.0.0.1"), "there": nodeAt("127.0.0.2")}
		here, there := newNode(t, "here", port), newNode(t, "there", port)
		for _, n := range []*node{here, there} {
			n.prober.cfg.Echoes = func() bool { return sendsBack }
			n.prober.SetNodes(both)
			n.run()
		}
		here.says("that all is well", well)
		here.prober.SetNodes(map[string]*lb.Node{"there": {}})
		here.says("that a node without address is none", has("no Node of that name has an InternalIP"))
	}
}

// A question gets one datagram, so that nobody gets more than was sent; its kind says whether the datapath echoes.
func TestAQuestionGetsOneAnswer(t *testing.T) {
	for _, want := range []kind{answer, echoes} {
		n := newNode(t, "here", freePort(t))
		n.prober.cfg.Echoes = func() bool { return want == echoes }
		conn := n.dialed()
		answers, asked := map[uint64][]kind{}, uint64(0)
		for end := time.Now().Add(patience); len(answers) < 3 && time.Now().Before(end); {
			asked++
			_, _ = conn.Write(message{question, asked, Digest{}}.encode()) // nobody may listen yet
			for len(answers[asked]) == 0 {
				m, err := read(conn)
				if err != nil {
					break
				}
				answers[m.nonce] = append(answers[m.nonce], m.kind)
			}
		}
		for nonce, got := range answers {
			if len(got) != 1 || got[0] != want {
				t.Errorf("question %d is answered %q, want one %q", nonce, got, want)
			}
		}
		if len(answers) < 3 {
			t.Errorf("of %d questions %d are answered", asked, len(answers))
		}
	}
}

// TestAPortThatIsTakenIsTriedAgain has somebody else hold the port at which a node answers, for a while.
func TestAPortThatIsTakenIsTriedAgain(t *testing.T) {
	taken := takePort(t)
	n := newNode(t, "here", portOf(taken))
	n.prober.SetNodes(map[string]*lb.Node{"here": nodeAt("127.0.0.1"), "there": nodeAt("127.0.0.2")})
	n.run()
	n.says("why nobody is answered", has("does not answer other nodes"))
	taken.Close()
	n.says("that all are", not(has("does not answer other nodes")))
}

// TestANodeWhoseDeviceFiltersDoesNotAnswer has the filter set to loose after a while.
func TestANodeWhoseDeviceFiltersDoesNotAnswer(t *testing.T) {
	port := freePort(t)
	both := map[string]*lb.Node{"here": nodeAt("127.0.0.1"), "there": nodeAt("127.0.0.2")}
	here, there := newNode(t, "here", port), newNode(t, "there", port)
	there.filtered.Store(true)
	for _, n := range []*node{here, there} {
		n.prober.SetNodes(both)
		n.run()
	}
	there.says("what helps", has("set net.ipv4.conf.vxlan0.rp_filter to 2"))
	here.says("that nobody listens there", has("no agent runs there"))
	there.filtered.Store(false)
	here.says("that all is well", well)
}

// TestANodeThatGetsItsAddressLaterAsks has a node that is known before its address is there.
func TestANodeThatGetsItsAddressLaterAsks(t *testing.T) {
	const late = "192.0.2.1"
	testenv.Need(t)
	port := freePort(t)
	both := map[string]*lb.Node{"here": nodeAt(late), "there": nodeAt("127.0.0.2")}
	here, there := newNode(t, "here", port), newNode(t, "there", port)
	for _, n := range []*node{here, there} {
		n.prober.SetNodes(both)
		n.run()
	}
	here.says("why nobody is asked", has("cannot be asked"))
	testenv.AddAddress(t, late)
	here.says("that all is well", well)
}

// A home of another version would reset connections that it does not know, so that nobody is left
// out of their search while there is one.
func TestNobodyIsLeftOutWhileVersionsDiffer(t *testing.T) {
	now := time.Now()
	silence := func(p *peer) {
		for range missing {
			p.hasAsked(now)
		}
		p.tick(now.Add(deadNode), Counts{})
	}
	dead := newPeer(plan.Peer{Usable: true}, 1500)
	silence(dead)
	other := &asked{peer: newPeer(plan.Peer{Usable: true}, 1500), isHome: true}
	answer := func(theirs Digest) { other.hasAnswered(now, answer, theirs, Digest{}) }
	var told map[string]plan.Node
	p := New(Config{Here: "here", Notify: func(_ string, all map[string]plan.Node) { told = all }, Report: func([]Status) {}})
	p.peers = map[string]*asked{"dead": {peer: dead, isHome: true}, "other": other}
	for _, step := range []struct {
		when   string
		do     func()
		silent bool
	}{
		{"carries alike", func() { answer(Digest{}) }, true},
		{"carries otherwise", func() { answer(Digest{1}) }, false},
		{"has no agent", func() { other.hasRefused(now) }, false},
		{"is no home any more", func() { other.isHome = false }, true},
		{"is a home again", func() { other.isHome = true }, false},
		{"is silent, too", func() { silence(other.peer) }, false},
		{"was brought to this version", func() { answer(Digest{}) }, true},
	} {
		step.do()
		p.tell()
		if told["other"].Silent {
			t.Errorf("the other node %s: it is left out", step.when)
		}
		if got := told["dead"].Silent; got != step.silent {
			t.Errorf("the other node %s: the dead one is left out: %v, want %v", step.when, got, step.silent)
		}
	}
}

// What others may carry here is answered with the digest of the question, all else with none: this node's
// own proves that it has the key.
func TestTheAnswerIsTheQuestionsDigestWhereThatIsTaken(t *testing.T) {
	key := [2]uint64{3, 4}
	own, other := DigestOf(key), DigestOf([2]uint64{5})
	n := newNode(t, "here", freePort(t))
	n.prober.cfg.Key = key
	conn := n.dialed()
	for asked, want := range map[Digest]Digest{own: own, other: {}} {
		if got := ask(t, conn, asked); got != want {
			t.Errorf("asked with %x it answers %x, want %x", asked, got, want)
		}
	}
}

// dialed has the node run, and returns what another one asks it by.
func (n *node) dialed() *net.UDPConn {
	n.Helper()
	n.prober.SetNodes(map[string]*lb.Node{"here": nodeAt("127.0.0.1"), "there": nodeAt("127.0.0.2")})
	n.run()
	return dialFrom(n.T, net.IPv4(127, 0, 0, 2), n.prober.cfg.Port)
}

// dialFrom returns a socket of an address that asks the node.
func dialFrom(t *testing.T, from net.IP, port uint16) *net.UDPConn {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: from}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// read returns what comes within a second.
func read(conn *net.UDPConn) (message, error) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	b := make([]byte, 2*messageLen)
	n, err := conn.Read(b)
	if err != nil {
		return message{}, err
	}
	m, ok := decode(b[:n])
	if !ok {
		return m, fmt.Errorf("%x is no message", b[:n])
	}
	return m, nil
}

// ask returns the digest that a question is answered with.
func ask(t *testing.T, conn *net.UDPConn, digest Digest) Digest {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, _ = conn.Write(message{question, 7, digest}.encode()) // nobody may listen yet
		if m, err := read(conn); err == nil && m.kind == answer {
			return m.digest
		}
	}
	t.Fatal("no answer")
	return Digest{}
}

// A question with the digest of the key is answered, though strangers have filled the queue of the
// other socket.
func TestAFloodKeepsNoNodeFromAsking(t *testing.T) {
	key := [2]uint64{3, 4}
	n := newNode(t, "here", freePort(t))
	n.prober.cfg.Key = key
	conn := n.dialed()
	ask(t, conn, DigestOf(key))
	var strangers []*net.UDPConn
	for range 16 {
		strangers = append(strangers, dialFrom(t, net.IPv4(127, 0, 0, 3), n.prober.cfg.Port))
	}
	n.prober.mu.Lock() // questions of strangers wait
	for i := range 20000 {
		_, _ = strangers[i%len(strangers)].Write(message{question, 1, Digest{}}.encode())
	}
	_, _ = conn.Write(message{question, 9, DigestOf(key)}.encode())
	n.prober.mu.Unlock()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if m, err := read(conn); err == nil && m.nonce == 9 {
			return
		}
	}
	t.Error("a question is lost among those of strangers")
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
