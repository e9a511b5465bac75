package packets

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// stateStories are told by TestPackets.
var stateStories = []story{
	{"A client speaks to a backend by a frontend and past it", aClientSpeaksToABackendByAFrontendAndPastIt},
	{"A connection past the Services takes the place of one that ended", aDirectConnectionTakesThePlaceOfOneThatEnded},
	{"A lost original direction is found by the reply", aLostOriginalDirectionIsFoundByTheReply},
	{"A lost reply direction is made again", aLostReplyDirectionIsMadeAgain},
	{"A half-open flow gets its reply direction again", aHalfOpenFlowGetsItsReplyDirectionAgain},
	{"No direction is made of what another flow becomes", noDirectionIsMadeOfAnother},
	{"A confirmation that a way has missed is made up for", aMissedConfirmationIsMadeUpFor},
	{"A reply direction is not confirmed by a later connection", aReplyIsNotConfirmedByALaterConnection},
	{"A reply direction that was broken is valid again with the original one", aBrokenReplyDirectionIsValidAgain},
	{"A lost connection is reset", aLostConnectionIsReset},
	{"A lost connection of a remote backend keeps its port", aLostConnectionOfARemoteBackendKeepsItsPort},
	{"A client port outlives backends whose IDs come again", aClientPortOutlivesBackendsWhoseIDsComeAgain},
	{"A lost connection goes where its client went", aLostConnectionGoesWhereItsClientWent},
	{"Flows and the node itself have ports of their own", flowsAndTheNodeHavePortsOfTheirOwn},
	{"An affinity that names no backend is taken over", anAffinityOfNoBackendIsTakenOver},
}

// has says whether there is a flow with a key.
func (r *rig) has(tb testing.TB, k key) bool {
	tb.Helper()
	_, there := r.table.find(tb, k)
	return there
}

// drop forgets what a packet becomes at a hook, as if it had made room.
func (r *rig) drop(tb testing.TB, h hook, p packet) {
	tb.Helper()
	w, there := r.table.find(tb, key{h, p.src, p.dst, p.protocol})
	if !there {
		tb.Fatalf("forget %s at %s: there is no such flow", describe(p), h)
	}
	r.table.remove(tb, w)
}

// establish makes a connection of a client to a local backend by a frontend,
// which both sides confirm. It returns the first packet.
func (c cast) establish(t *testing.T, client, vip, backend netip.AddrPort) packet {
	t.Helper()
	p := c.packet(client, vip, 3)
	c.becomes(t, "the connection begins", in, uplink, p, p.to(client, backend))
	a := p.to(client, backend).answer("SA", nil)
	c.becomes(t, "the answer", out, uplink, a, a.to(vip, client))
	c.becomes(t, "the client confirms it", in, uplink, p.with("A"), p.with("A").to(client, backend))
	return p
}

func aClientSpeaksToABackendByAFrontendAndPastIt(t *testing.T, c cast) {
	client, vip := at(c.client, 40000), at(c.vip, 80)
	for _, backend := range []netip.AddrPort{at(c.local, 8080), at(c.remote, 8080)} {
		c.forget(t)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
		p := c.establish(t, client, vip, backend)
		past := c.packet(client, backend, 3)
		moved := c.comesOut(t, "past the frontend it gets another port", in, uplink, past)
		if moved.src.Addr() != client.Addr() || moved.src.Port() == client.Port() || moved.dst != backend {
			t.Fatalf("it becomes %s", describe(moved))
		}
		c.becomes(t, "and keeps it", in, uplink, past.with("A"), moved.with("A"))
		c.untouched(t, "and its address where it leaves", out, tunnel, moved)
		a := moved.answer("SA", nil)
		c.becomes(t, "the answer comes from the backend", out, uplink, a, a.to(backend, client))
		a = p.to(client, backend).answer("A", nil)
		c.becomes(t, "the answer by the frontend is as ever", out, uplink, a, a.to(vip, client))
	}
}

func aDirectConnectionTakesThePlaceOfOneThatEnded(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	a := p.to(client, backend).answer("FA", nil)
	c.becomes(t, "the backend ends it", out, uplink, a, a.to(vip, client))
	c.becomes(t, "and so does the client", in, uplink, p.with("FA"), p.with("FA").to(client, backend))
	c.age(t, 200)
	past := c.packet(client, backend, 3)
	c.untouched(t, "a connection past the frontend", in, uplink, past)
	c.untouched(t, "goes on", in, uplink, past.with("A"))
	c.untouched(t, "both directions", out, uplink, past.answer("SA", nil))
}

func aLostOriginalDirectionIsFoundByTheReply(t *testing.T, c cast) {
	client, vip := at(c.client, 40000), at(c.vip, 80)
	var all []netip.AddrPort
	for i := range uint16(20) {
		all = append(all, at(c.local, 8080+i))
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, all...))
	first := c.packet(client, vip, 3)
	chosen := c.comesOut(t, "the first packet", in, uplink, first)
	a := chosen.answer("SA", nil)
	c.becomes(t, "the answer", out, uplink, a, a.to(vip, client))
	c.drop(t, in, first)
	if c.protocol != lb.TCP {
		return
	}
	c.becomes(t, "within the connection it is the same backend", in, uplink, first.with("A"), chosen.with("A"))
}

func aLostReplyDirectionIsMadeAgain(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	a := p.to(client, backend).answer("A", nil)
	if c.protocol != lb.TCP {
		c.age(t, 3) // else they are too young to be confirmed
		c.becomes(t, "another question", in, uplink, p, p.to(client, backend))
	}
	c.drop(t, out, a)
	c.age(t, 18)
	c.becomes(t, "the client goes on", in, uplink, p.with("A"), p.with("A").to(client, backend))
	c.becomes(t, "and is answered", out, uplink, a, a.to(vip, client))
	c.drop(t, in, p)
	c.age(t, 18)
	c.becomes(t, "the backend goes on", out, uplink, a, a.to(vip, client))
	c.becomes(t, "and is answered", in, uplink, p.with("A"), p.with("A").to(client, backend))
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local2, 8080)))
	if c.protocol == lb.TCP {
		c.isReset(t, "it is known whose connection it is", in, uplink, p.with("A"))
		return
	}
	c.becomes(t, "it is known whose flow it is", in, uplink, p, p.to(client, at(c.local2, 8080)))
}

// The node connects to a backend to which flows go, by a port that one of them has, and
// by one that a client wants later.
func flowsAndTheNodeHavePortsOfTheirOwn(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	leaves := func(client uint16) packet {
		p := c.packet(at(c.client, client), vip, 0)
		c.becomes(t, "a client", in, uplink, p, p.to(p.src, backend))
		return c.comesOut(t, "leaves", out, tunnel, p.to(p.src, backend))
	}
	if got := leaves(25000).src; got != at(c.tunnel, 25000) {
		t.Errorf("a client's own port is free, and it leaves as %s", got)
	}
	second := c.packet(at(c.tunnel, 25000), backend, 0)
	left := c.comesOut(t, "the node from a port that a flow has", out, tunnel, second)
	if left.src.Addr() != c.tunnel || left.src == second.src || left.dst != backend {
		t.Errorf("it leaves as %s → %s", left.src, left.dst)
	}
	a := left.answer("SA", nil)
	c.becomes(t, "which hears its answer", in, tunnel, a, a.to(backend, second.src))
	c.becomes(t, "it goes on", out, tunnel, second.with("A"), left.with("A"))
	free := c.packet(at(c.tunnel, 25001), backend, 0)
	c.untouched(t, "the node from a port that is free", out, tunnel, free)
	if got := leaves(25001).src; got.Addr() != c.tunnel || got.Port() == 25001 {
		t.Errorf("the node has this port, and a client leaves as %s", got)
	}
	c.untouched(t, "the node hears the answer", in, tunnel, free.answer("SA", nil))
	other := c.packet(at(c.tunnel, 25000), at(c.router, 443), 0)
	c.untouched(t, "what goes elsewhere", out, tunnel, other)
}

// One direction of a flow that is half-open, or was closed by both, has made room for
// another: then the client tries again, or uses its port once more.
func aHalfOpenFlowGetsItsReplyDirectionAgain(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(at(c.client, 40000), vip, 3)
	a := p.to(p.src, backend).answer("SA", nil)
	c.becomes(t, "the client begins", in, uplink, p, p.to(p.src, backend))
	c.drop(t, out, a)
	c.age(t, 1)
	c.becomes(t, "and tries again", in, uplink, p, p.to(p.src, backend))
	c.becomes(t, "it is answered by the frontend", out, uplink, a, a.to(vip, p.src))
	if c.protocol != lb.TCP {
		c.becomes(t, "and asks on", in, uplink, p, p.to(p.src, backend))
		c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 3})
		return
	}
	p = c.establish(t, at(c.client, 40001), vip, backend)
	a = p.to(p.src, backend).answer("SA", nil)
	c.becomes(t, "the backend ends a connection", out, uplink, a.with("FA"), a.with("FA").to(vip, p.src))
	c.becomes(t, "and so does the client", in, uplink, p.with("FA"), p.with("FA").to(p.src, backend))
	c.drop(t, out, a)
	c.becomes(t, "the client begins anew", in, uplink, p, p.to(p.src, backend))
	c.becomes(t, "and is answered by the frontend", out, uplink, a, a.to(vip, p.src))
}

// The backend leaves its Service and comes again, and the original direction makes room.
func aBrokenReplyDirectionIsValidAgain(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	a := p.to(client, backend).answer("A", nil)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local2, 8080)))
	c.isReset(t, "the backend has left", in, uplink, p.with("A"))
	c.isReset(t, "and is told, too", out, uplink, a)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	c.drop(t, in, p)
	c.becomes(t, "the client is led by the reply direction", in, uplink, p.with("A"), p.with("A").to(client, backend))
	c.becomes(t, "which leads to it again", out, uplink, a, a.to(vip, client))
}

func aLostConnectionIsReset(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080), at(c.remote, 8080)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 10)
	for _, flags := range []string{"A", "FA", "SA", ""} {
		c.isReset(t, "a packet of no connection", in, uplink, p.with(flags))
	}
	c.refused(t, "nor has a reset", in, uplink, p.with("R"))
	c.wantCounts(t, map[string]uint64{"flow_reset": 4, "drop no_flow": 5, "drop no_flow of web": 5})
	if n := c.flows(t); n > 0 {
		t.Errorf("%d tuples are kept", n)
	}
}

func aLostConnectionOfARemoteBackendKeepsItsPort(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	var went, left []packet
	for _, client := range []netip.Addr{c.client, c.other, c.router} {
		p := c.packet(at(client, 40000), vip, 0)
		c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(p.src, backend))
		went = append(went, p.to(p.src, backend))
		left = append(left, c.comesOut(t, "and leaves", out, tunnel, p.to(p.src, backend)))
	}
	for i := range went {
		c.drop(t, out, went[i])
	}
	if c.protocol != lb.TCP {
		return
	}
	for i := len(went) - 1; i >= 0; i-- {
		c.becomes(t, "it leaves as it did", out, tunnel, went[i].with("A"), left[i].with("A"))
	}
	c.drop(t, out, went[1])
	c.drop(t, in, left[1].answer("", nil))
	c.isReset(t, "without a reply direction it is lost", out, tunnel, went[1].with("A"))
}

func aLostConnectionGoesWhereItsClientWent(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 1), at(c.local, 2), at(c.local, 3), at(c.remote, 4))
	f.AffinityTimeout = 3600
	c.set(t, "web", f)
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 0)
	chosen := c.comesOut(t, "the connection begins", in, uplink, p)
	c.drop(t, in, p)
	c.drop(t, out, chosen.answer("", nil))
	c.becomes(t, "it goes on by session affinity", in, uplink, p.with("A"), chosen.with("A"))
}

// An affinity that came along from another layout may have no backend.
func anAffinityOfNoBackendIsTakenOver(t *testing.T, c cast) {
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 1), at(c.local, 2), at(c.local, 3))
	f.AffinityTimeout = 3600
	c.set(t, "web", f)
	choose := func(port uint16) netip.AddrPort {
		return c.comesOut(t, "a connection begins", in, uplink, c.packet(at(c.client, port), at(c.vip, 80), 0)).dst
	}
	choose(40000)
	m := c.tables["affinities"]
	var key, value []byte
	for entries := m.Iterate(); entries.Next(&key, &value); {
		must(t, m.Put(key, make([]byte, len(value))))
	}
	first := choose(40001)
	for port := uint16(40002); port < 40022; port++ {
		if next := choose(port); next != first {
			t.Fatalf("the client had %s and gets %s", first, next)
		}
	}
}

// TestASlowHandshakeSurvivesAFlood has a client whose ACK comes when its flow has made room
// for SYNs of others: it goes to the backend that had the SYN, whatever the algorithm.
func TestASlowHandshakeSurvivesAFlood(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 1 << 10 })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: aSlowHandshakeSurvivesAFlood}, cast{b, r, lb.TCP}) })
	}
}

func aSlowHandshakeSurvivesAFlood(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	var backends []netip.AddrPort
	for i := range uint16(16) {
		backends = append(backends, at(c.local, 8080+i))
	}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backends...))
	port := uint16(1024)
	flood := func() {
		for range 8 * c.table.room() {
			port++
			c.passes(t, in, c.packet(at(c.other, port), vip, 0))
		}
	}
	flood()
	for i := range uint16(20) {
		p := c.packet(at(c.client, 40000+i), vip, 0)
		first := c.comesOut(t, "the SYN", in, uplink, p)
		a := first.answer("SA", nil)
		c.becomes(t, "its answer", out, uplink, a, a.to(vip, p.src))
		c.drop(t, in, p)
		c.drop(t, out, a)
		c.becomes(t, "the ACK, later", in, uplink, p.with("A"), first.with("A"))
		a = first.answer("A", nil)
		c.becomes(t, "what the backend says then", out, uplink, a, a.to(vip, p.src))
		c.becomes(t, "and the client after that", in, uplink, p.with("A"), first.with("A"))
		for h, q := range map[hook]packet{in: p, out: a} {
			if w, there := c.table.find(t, key{h, q.src, q.dst, q.protocol}); !there || w.state&flagHalfOpen != 0 {
				t.Fatalf("%s at %s is there: %t, and half-open though both sides have answered each other", describe(q), h, there)
			}
		}
	}
	if c.counters(t)["flow_expired"] == c.counted["flow_expired"] {
		t.Error("no flow made room")
	}
}

// TestAFloodLeavesAlone has more half-open connections than the table has
// entries, beside some that work.
func TestAFloodLeavesAlone(t *testing.T) {
	r := newRig(t)
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		t.Run(protocol.String(), func(t *testing.T) { r.tell(t, story{tell: aFloodLeavesAlone}, cast{v4, r, protocol}) })
	}
}

func aFloodLeavesAlone(t *testing.T, c cast) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
	var open []packet
	for port := range uint16(1000) {
		open = append(open, c.establish(t, at(c.client, 40000+port), vip, local))
	}
	if c.protocol != lb.TCP {
		c.age(t, 3)
		for _, p := range open {
			c.becomes(t, "another query confirms it", in, uplink, p, p.to(p.src, local))
		}
	}
	entries := uint32(c.table.room())
	flood := c.packet(at(c.other, 1), vip, 0)
	frame, options := flood.frame(t), ebpf.RunOptions{Context: c.context(uplink)}
	for i := range 2 * entries {
		binary.BigEndian.PutUint32(frame[ethernetLen+12:], 0x0b000000+i)
		options.Data = frame
		if verdict, err := c.programs[in].Run(&options); err != nil || verdict != pass {
			t.Fatalf("packet %d: verdict %d, %v", i, verdict, err)
		}
	}
	there := c.table.keys(t)
	for _, p := range open {
		hasBoth(t, there, in, p, p.to(p.src, local))
		c.becomes(t, "what worked goes on", in, uplink, p.with("A"), p.with("A").to(p.src, local))
		a := p.to(p.src, local).answer("A", nil)
		c.becomes(t, "both directions", out, uplink, a, a.to(vip, p.src))
	}
	for port := range uint16(1000) {
		c.establish(t, at(c.router, 40000+port), vip, local)
	}
}

// The ID of a backend that is gone is another's in the end, while connections
// of its last clients are still remembered.
func aClientPortOutlivesBackendsWhoseIDsComeAgain(t *testing.T, c cast) {
	vip, first, last := at(c.vip, 80), at(c.local, 8000), at(c.local, 8002)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, first))
	closed := c.establish(t, at(c.client, 40000), vip, first)
	open := c.establish(t, at(c.client, 40001), vip, first)
	for port := first.Port() + 1; port <= last.Port(); port++ {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local, port)))
		c.apply(t, c.planner.Sweep())
	}
	c.becomes(t, "a new connection by the old port goes where there is a backend", in, uplink, closed, closed.to(closed.src, last))
	if c.protocol == lb.TCP {
		c.isReset(t, "the open one has lost its backend", in, uplink, open.with("A"))
	}
}

// The way of a packet's flow is given to another one while the packet is noted.
func noDirectionIsMadeOfAnother(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	c.drop(t, out, p.to(client, backend).answer("A", nil))
	w, _ := c.table.find(t, key{in, client, vip, c.protocol})
	c.table.setTo(t, w, [4]byte{0xde, 0xad, 0xbe, 0xef}) // and its check says so
	c.run(t, in, uplink, p.with("FA").frame(t))
	for _, w := range c.table.all(t) {
		if w.key.hook == out && w.key.src != backend {
			t.Errorf("there is a direction of %s, which no flow has", w.key.src)
		}
	}
	if n := c.counters(t)["flow_restored"] - c.counted["flow_restored"]; n != 0 {
		t.Errorf("%d directions were restored", n)
	}
}

// The reply direction was just moving to its other set when the original one was confirmed.
func aMissedConfirmationIsMadeUpFor(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for name, again := range map[string]func(packet){
		"an answer": func(p packet) {
			a := p.to(client, backend).answer("A", nil)
			c.becomes(t, "an answer", out, uplink, a, a.to(vip, client))
		},
		"a packet of the client": func(p packet) {
			c.age(t, 18) // the other direction is asked for again
			c.becomes(t, "a packet of the client", in, uplink, p.with("A"), p.with("A").to(client, backend))
		},
	} {
		c.forget(t)
		p := c.establish(t, client, vip, backend)
		reply := key{out, backend, client, c.protocol}
		for _, w := range c.table.all(t) {
			if w.key == reply {
				c.table.setState(t, w, w.state|flagHalfOpen)
			} else {
				c.table.setState(t, w, w.state&^flagHalfOpen)
			}
		}
		c.age(t, 1)
		again(p)
		for _, w := range c.table.all(t) {
			if w.state&flagHalfOpen != 0 {
				t.Errorf("after %s the direction from %s is half-open", name, w.key.src)
			}
		}
	}
}

// The client tried one backend, which left before it answered, and has a connection to the next.
func aReplyIsNotConfirmedByALaterConnection(t *testing.T, c cast) {
	client, vip, left, next := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, left))
	p := c.packet(client, vip, 3)
	c.becomes(t, "the first try", in, uplink, p, p.to(client, left))
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, next))
	c.establish(t, client, vip, next)
	for _, w := range c.table.all(t) {
		if w.key.src != left {
			c.table.setState(t, w, w.state&^flagHalfOpen) // of datagrams as well, without waiting
		}
	}
	late := p.to(client, left).answer("SA", nil)
	c.becomes(t, "a late answer", out, uplink, late, late.to(vip, client))
	w, there := c.table.find(t, key{out, left, client, c.protocol})
	if !there || w.state&flagHalfOpen == 0 {
		t.Errorf("there is a direction from the backend that left: %t; it is half-open: %t", there, w.state&flagHalfOpen != 0)
	}
}
