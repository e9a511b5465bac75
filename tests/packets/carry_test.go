package packets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// carryStories are told by TestCarrying, of a fleet of three nodes.
var carryStories = []struct {
	name string
	tell func(*testing.T, *fleet)
}{
	{"A packet is carried as it came, within an outer header", aPacketIsCarriedAsItCame},
	{"What is carried and may begin a connection is told of", carriedIsTold},
	{"Flows keep a port of the outer header each", flowsKeepAPort},
	{"At its home it is what any packet to a local backend is", atHomeItIsAsAnyOther},
	{"What is not carried by a peer for a carried Service stays as it is", othersStayAsTheyAre},
	{"Packets of all shapes are proven", packetsOfAllShapesAreProven},
	{"Both keys of a node are accepted, and no other", bothKeysAreAccepted},
	{"What was carried and is for nobody goes nowhere", carriedForNobodyGoesNowhere},
	{"Who sends what is too long is told so", tooLongIsTold},
	{"What may be fragmented is carried in pieces", tooLongIsCut},
	{"Congestion on the way is told to the backend", congestionIsTold},
	{"Segments leave room for the outer header", segmentsLeaveRoom},
	{"A connection is found after its slot has moved", aConnectionIsFound},
	{"The driver carries as TC does", theDriverCarries},
	{"The networks of clients that begin connections and do nothing else are counted", networksAreCounted},
	{"Nobody's connection is asked for once around and reset where that is certain", nobodysIsReset},
	{"Questions of peers come back", questionsComeBack},
	{"What is no question of a peer does not", othersDoNotComeBack},
	{"A node answers for as long as its agent says", questionsAreRefused},
	{"Of a flood of questions few come back", questionsAreLimited},
	{"Who is no peer is not asked", whoIsNoPeerIsNotAsked},
	{"Echoes of questions are taken before the stack", echoesAreTaken},
	{"Packets that are no echoes are left to the stack", othersAreNoEchoes},
	{"What pods forge does not leave", forgedDoesNotLeave},
	{"What a node carries leaves", ownLeaves},
	{"Carried packets and questions begin no flows", carriedBeginsNoFlow},
	{"Tunnels, questions and probes leave", othersLeave},
	{"Tunnels of IP in IP are left alone", tunnelsAreLeftAlone},
	{"Questions leave where a Service has an address of the node", questionsOfANodeWithAService},
	{"What is carried leaves where a Service has an address of the other node", carriedToANodeWithAService},
	{"Other ports of an address within a service CIDR are refused", otherPortsOfAServiceCIDR},
	{"Answers go straight to the client", answersGoStraight},
	{"A packet whose time to live ends is left to the stack", whatEndsHereIsNotCarried},
	{"Frames with tags go by the node's address", tagsGoByAddress},
	{"ICMP errors go to who has the connection", errorsAreCarried},
	{"What begins goes by the node's address where a peer is not usable", notUsableGoesByAddress},
	{"A connection is found past a node that is dead", aConnectionIsFoundPastADeadNode},
	{"A node that is taken for dead keeps its connections", aNodeThatIsTakenForDeadKeepsItsConnections},
	{"A node that is yet to learn of changes takes no connection of others", aNodeThatLagsTakesNoConnection},
	{"Of a flood of strays few are asked for", straysAreLimited},
	{"Clients outside of source ranges are not carried", sourceRangesHold},
	{"The driver leaves to TC what it does not know any more", theWayToAPeerEnds},
	{"A next hop that changes is known within a second", aNextHopChanges},
	{"It is explained which backend a carried packet gets", explainKnowsTheBackend},
}

// TestCarrying has the driver see each packet before TC does: what it sends is what TC sends, to the
// last byte, and all else it leaves as it is.
func TestCarrying(t *testing.T) {
	f := newDrivenFleet(t)
	for _, overV6 := range []bool{false, true} {
		f.carryOver(t, overV6)
		t.Run("over "+f.family(), f.tell)
	}
}

// tell tells stories of Services of both families.
func (f *fleet) tell(t *testing.T) {
	for _, n := range f.nodes {
		n.driver = &comparison{}
	}
	for _, s := range carryStories {
		for _, b := range []book{v4, v6} {
			t.Run(s.name+"/"+b.family(), func(t *testing.T) {
				f.book, f.protocol = b, lb.TCP
				for _, n := range f.nodes {
					defer n.tracesRefusals(t)()
				}
				s.tell(t, f)
			})
		}
	}
	for i, n := range f.nodes {
		t.Logf("the driver of node %d has sent %d packets and passed on %d", i, n.driver.sent, n.driver.passed)
		if n.driver.sent == 0 || n.driver.passed == 0 {
			t.Errorf("the driver of node %d is not tested", i)
		}
	}
}

// family is that of the outer header.
func (f *fleet) family() string {
	if f.overV6 {
		return "IPv6"
	}
	return "IPv4"
}

// packet is one from a port of the client.
func (f *fleet) packet(port uint16, flags string, size int) packet {
	return packet{src: at(f.client, port), dst: at(f.vip, 80), protocol: f.protocol, flags: flags, payload: bytes.Repeat([]byte("x"), size)}
}

// begin begins a connection through a node. It returns its packet, and its backend.
func (f *fleet) begin(t *testing.T, node int, port uint16) (packet, int, int) {
	t.Helper()
	p := f.packet(port, "S", 0)
	got := f.enter(t, node, p.frame(t))
	if got.what != "delivered" {
		t.Fatalf("what begins at node %d is %s at %d: %s", node, got.what, got.node, dump(got.frame))
	}
	_, backend, _ := ends(got.frame)
	f.nodes[got.node].becomes(t, "the answer", out, uplink, p.to(backend, p.src).with("SA"), p.to(p.dst, p.src).with("SA"))
	f.wants(t, node, p.with("A"), "delivered", got.node, "the handshake")
	return p, got.node, f.numberOf(backend)
}

func (f *fleet) numberOf(addr netip.AddrPort) int {
	for b := range backendsOfNode * len(f.nodes) {
		if f.addrOf(b) == addr {
			return b
		}
	}
	return -1
}

func (f *fleet) wants(t *testing.T, node int, p packet, what string, at int, when string) fate {
	t.Helper()
	got := f.enter(t, node, p.frame(t))
	if got.what != what || got.node != at {
		t.Fatalf("%s: through node %d it is %s at node %d after %d frames, want %s at %d: %s", when, node, got.what, got.node, got.frames, what, at, dump(got.frame))
	}
	return got
}

func aPacketIsCarriedAsItCame(t *testing.T, f *fleet) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		f.serve(t, 2)
		for _, flags := range []string{"S", "A", "FA", "R"} {
			for _, size := range []int{0, 1, 700} {
				for _, hops := range []uint8{255, 64, 2} {
					p := f.packet(40000, flags, size)
					p.ttl = hops
					frame := p.frame(t)
					given := bytes.Clone(frame)
					for len(given) < 60 { // as Ethernet pads it
						given = append(given, 0)
					}
					verdict, made := f.nodes[0].run(t, in, uplink, given)
					p.ttl--
					want := f.outerOf(0, 1, p.frame(t), 0, 0)
					if verdict != redirect || len(made) < len(want) || !f.isCarriedAs(made[:len(want)], want) {
						t.Fatalf("%s %s of %d bytes, %d hops: verdict %d\ngot  %s\nwant %s", protocol, flags, size, hops, verdict, dump(made), dump(want))
					}
				}
			}
		}
		if n := f.nodes[0].flows(t); n != 0 {
			t.Errorf("the node where packets come in keeps %d flows", n)
		}
	}
}

func flowsKeepAPort(t *testing.T, f *fleet) {
	f.serve(t, 2)
	ports := map[uint16]bool{}
	for port := range uint16(200) {
		var of [2]uint16
		for i, size := range []int{10, 900} {
			p := f.packet(40000+port, "SA"[i:i+1], size)
			_, made := f.nodes[0].run(t, in, uplink, p.frame(t))
			of[i] = binary.BigEndian.Uint16(f.flowPort(made))
		}
		if of[0] != of[1] || of[0] < firstFlowPort {
			t.Fatalf("two packets of a flow are carried from ports %d and %d", of[0], of[1])
		}
		ports[of[0]] = true
	}
	if len(ports) < 150 {
		t.Errorf("200 flows have %d ports", len(ports))
	}
}

func atHomeItIsAsAnyOther(t *testing.T, f *fleet) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		f.serve(t, 2)
		for _, flags := range []string{"S", "A"} {
			p := f.packet(40000, flags, 30)
			got := f.wants(t, 0, p, "delivered", 1, flags)
			p.ttl = 63
			if want := p.to(p.src, f.addrOf(2)).frame(t); !bytes.Equal(got.frame[ethernetLen:], want[ethernetLen:]) || !bytes.Equal(got.frame[12:14], want[12:14]) {
				t.Errorf("%s %s: got %s\nwant %s", protocol, flags, dump(got.frame), dump(want))
			}
		}
	}
}

func answersGoStraight(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p, home, backend := f.begin(t, 0, 40000)
	f.nodes[home].becomes(t, "an answer", out, uplink, p.answer("A", p.payload).to(f.addrOf(backend), p.src), p.answer("A", p.payload))
}

// Networks of pods carry packets between the same nodes.
func othersStayAsTheyAre(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p := f.packet(40000, "S", 10)
	stranger := f.outerOf(0, 1, p.frame(t), 0, 0)
	if f.overV6 {
		stranger[22+15]++
	} else {
		stranger[26+3] += 9
		binary.BigEndian.PutUint16(stranger[24:], 0)
		binary.BigEndian.PutUint16(stranger[24:], sum16(stranger[14:34]))
	}
	plain := *f
	plain.ipip = true
	frames := f.withoutProof(t, p)
	frames["from a stranger"], frames["IP in IP"] = stranger, plain.outerOf(0, 1, p.frame(t), 0, 0)
	frames["to another node"] = f.outerOf(0, 2, p.frame(t), 0, 0)
	frames["to a pod"] = f.outerOf(0, 1, p.to(p.src, f.addrOf(2)).frame(t), 0, 0)
	frames["cut short"] = f.outerOf(0, 1, p.frame(t)[:ethernetLen+12], 0, 0)
	frames["a datagram"] = f.datagramBetween(t, 0, 1, "headgat")
	for what, frame := range frames {
		if verdict, made := f.nodes[1].run(t, in, uplink, frame); verdict != pass || !bytes.Equal(made, frame) {
			t.Errorf("%s: verdict %d for %s, given %s", what, verdict, dump(made), dump(frame))
		}
	}
	// A refusal of the stack would tell agents of earlier versions that the datapath carries on.
	before := f.nodes[1].drops(t)
	if verdict, _ := f.nodes[1].run(t, in, uplink, f.datagramBetween(t, 0, 1, "headgate peer\x00q")); verdict != drop || f.nodes[1].drops(t) != before+1 {
		t.Errorf("a question of an agent: verdict %d", verdict)
	}
}

// datagramBetween is what a node sends to the port of carried packets of another.
func (f *fleet) datagramBetween(t *testing.T, from, to int, payload string) []byte {
	t.Helper()
	return packet{src: at(f.nodes[from].addr, 50000), dst: at(f.nodes[to].addr, carryPort), protocol: lb.UDP, payload: []byte(payload)}.frame(t)
}

// Nodes accept the key that others will prove by next, or proved by before.
func bothKeysAreAccepted(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p := f.packet(40000, "S", 10)
	for i, key := range append(carryKeys[:], [2]uint64{carryKeys[0][0], carryKeys[1][1]}) {
		frame := f.outerOf(0, 1, p.frame(t), 0, 0)
		copy(frame[ethernetLen+f.outerLen()-8:], proofOf(key, f.nodes[0].addr, f.nodes[1].addr, p.datagram(t), 0))
		verdict, made := f.nodes[1].run(t, in, uplink, frame)
		if accepted := !bytes.Equal(made, frame); accepted != (i < len(carryKeys)) {
			t.Errorf("key %d: verdict %d for %s", i, verdict, dump(made))
		}
	}
}

// Sender and home read the same of a packet for its proof, whatever its shape.
func packetsOfAllShapesAreProven(t *testing.T, f *fleet) {
	f.protocol = lb.UDP
	f.serve(t, 2)
	p := f.packet(40000, "", 33)
	short, empty, lengthened, first, later := p, p, p, p, p
	short.payload, empty.payload = []byte{1}, nil
	destination := 16 // where its address is in the header; fragments have no ports
	if f.client.Is4() {
		lengthened.options = []byte{1, 1, 1, 0}
	} else {
		destination = 24
		lengthened.headers = []header{{60, make([]byte, 8)}}
	}
	first.fragment = &fragment{id: 17, size: 40}
	later.fragment = &fragment{id: 17, offset: 40} // of one byte
	home := f.enter(t, 0, p.frame(t))
	_, backend, _ := ends(home.frame)
	if home.what != "delivered" {
		t.Fatalf("a plain packet is %s", home.what)
	}
	for _, c := range []struct {
		what string
		packet
	}{{"a byte", short}, {"no payload", empty}, {"a longer header", lengthened}, {"the first fragment", first}, {"a fragment of one byte", later}} {
		got := f.enter(t, 0, c.frame(t))
		if to := got.frame[ethernetLen+destination:]; got.node != home.node || !bytes.HasPrefix(to, backend.Addr().AsSlice()) {
			t.Errorf("%s: it is %s at node %d, want a packet to %s at %d: %s", c.what, got.what, got.node, backend, home.node, dump(got.frame))
		}
	}
}

// withoutProof are frames that have the address of a peer, and no proof that it would give.
func (f *fleet) withoutProof(t *testing.T, p packet) map[string][]byte {
	from, to, inner := f.nodes[0].addr, f.nodes[1].addr, p.datagram(t)
	with := func(proof []byte) []byte {
		frame := f.outerOf(0, 1, p.frame(t), 0, 0)
		copy(frame[ethernetLen+f.outerLen()-len(proof):], proof)
		return frame
	}
	otherPort, otherClient, otherService, otherProtocol := p, p, p, p
	otherPort.dst = at(p.dst.Addr(), 81)
	otherClient.src = at(p.src.Addr().Next(), p.src.Port())
	otherService.dst = at(p.dst.Addr().Next(), p.dst.Port())
	otherProtocol.protocol = map[lb.Protocol]lb.Protocol{lb.TCP: lb.UDP, lb.UDP: lb.TCP}[p.protocol]
	gue := *f
	gue.outside = true
	frames := map[string][]byte{
		"no proof": with(make([]byte, 8)), "the proof of the other direction": with(proofOf(carryKeys[0], to, from, inner, 0)),
		"the proof for another node": with(proofOf(carryKeys[0], from, f.nodes[2].addr, inner, 0)),
		"a proof by no key":          with(proofOf([2]uint64{}, from, to, inner, 0)),
		"a proof after one home":     with(proofOf(carryKeys[0], from, to, inner, 1)), "a proof in the last round": with(proofOf(carryKeys[0], from, to, inner, 2<<4)),
		"UDP without a proof": gue.outerOf(0, 1, p.frame(t), 0, 0),
	}
	if p.is4() { // its options are where the other has ports
		otherPort.options = p.transport(t)[:4]
		frames["the proof of another port, with options"] = f.outerOf(0, 1, otherPort.frame(t), 0, 0)
		copy(frames["the proof of another port, with options"][ethernetLen+f.outerLen()-8:], proofOf(carryKeys[0], from, to, inner, 0))
		otherPort.options = nil
	}
	for what, other := range map[string]packet{"port": otherPort, "client": otherClient, "Service": otherService, "protocol": otherProtocol} {
		frames["the proof of another "+what] = with(proofOf(carryKeys[0], from, to, other.datagram(t), 0))
	}
	return frames
}

func carriedForNobodyGoesNowhere(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p := f.packet(40000, "S", 10)
	nested := f.outerOf(0, 1, p.frame(t), 0, 0)
	if f.overV6 == f.client.Is4() { // else what is inside goes to no Service
		nested = nil
	}
	fromNode, fromLoopback, fromLink := p, p, p
	fromLink.src = at(netip.MustParseAddr(map[bool]string{true: "169.254.169.254", false: "febf::1"}[f.client.Is4()]), 40000)
	fromNode.src = at(nodeAddr(1, !f.client.Is4()), 40000)
	fromLoopback.src = loopback(f.book, 40000)
	last := p
	last.ttl = 1
	for what, inner := range map[string][]byte{
		"another port": p.to(p.src, at(f.vip, 81)).frame(t), "from the node": fromNode.frame(t), "from loopback": fromLoopback.frame(t), "from a link": fromLink.frame(t), "at the end of its time": last.frame(t), "nested": nested,
	} {
		if inner == nil {
			continue
		}
		if what == "nested" { // the inner outer header is for the Service
			copy(inner[ethernetLen+map[bool]int{true: 24, false: 16}[f.overV6]:], f.vip.AsSlice())
		}
		before := f.nodes[1].drops(t)
		if verdict, made := f.nodes[1].run(t, in, uplink, f.outerOf(0, 1, inner, 0, 0)); verdict != drop {
			t.Errorf("%s: verdict %d for %s", what, verdict, dump(made))
		}
		if counted := f.nodes[1].drops(t) - before; counted != 1 {
			t.Errorf("%s: counts %d drops", what, counted)
		}
	}
}

// drops is how many packets were dropped, for any reason.
func (r *rig) drops(t *testing.T) (sum uint64) {
	t.Helper()
	for _, n := range testenv.Status(t, r.root).Drops {
		sum += n
	}
	return sum
}

func whatEndsHereIsNotCarried(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p := f.packet(40000, "S", 10)
	p.ttl = 1
	f.nodes[0].untouched(t, "one hop is left", in, uplink, p)
}

// The outer header has the marks of the inner one; what routers add is told (RFC 6040).
func congestionIsTold(t *testing.T, f *fleet) {
	f.serve(t, 2)
	const capable, experienced, other = 0x2a, 0x2b, 0x28
	p := f.packet(40000, "S", 10)
	_, made := f.nodes[0].run(t, in, uplink, f.marked(p.frame(t), capable))
	p.ttl = 63
	if want := f.outerOf(0, 1, f.marked(p.frame(t), capable), capable, 0); !f.isCarriedAs(made, want) {
		t.Errorf("got %s\nwant %s", dump(made), dump(want))
	}
	p.ttl = 64
	for _, c := range []struct{ inner, outer, becomes byte }{{capable, capable, capable}, {capable, experienced, experienced}, {other, other, other}, {experienced, experienced, experienced}} {
		verdict, got := f.nodes[1].run(t, in, uplink, f.outerOf(0, 1, f.marked(p.frame(t), c.inner), c.outer, 0))
		if want := f.marked(p.to(p.src, f.addrOf(2)).frame(t), c.becomes); verdict != pass || !bytes.Equal(got[ethernetLen:], want[ethernetLen:]) {
			t.Errorf("%x within %x: verdict %d, got %s\nwant %s", c.inner, c.outer, verdict, dump(got), dump(want))
		}
	}
	if verdict, _ := f.nodes[1].run(t, in, uplink, f.outerOf(0, 1, f.marked(p.frame(t), other), experienced, 0)); verdict != drop {
		t.Errorf("a mark that cannot be told: verdict %d", verdict)
	}
}

// withMSS puts options of TCP behind its header, of which one says how long segments may be.
func withMSS(t *testing.T, p packet, before []byte, mss uint16) []byte {
	t.Helper()
	options := append(bytes.Clone(before), 2, 4, byte(mss>>8), byte(mss))
	for len(options)%4 != 0 {
		options = append(options, 1)
	}
	p.payload = options
	frame := p.frame(t)
	v, _ := parseFrame(frame)
	frame[v.l4+12] = byte(20+len(options)) / 4 << 4
	adjust(frame[v.l4+16:], []byte{0x50, 0}, []byte{frame[v.l4+12], 0})
	return frame
}

func segmentsLeaveRoom(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p, home, backend := f.begin(t, 0, 40000)
	answer := p.to(f.addrOf(backend), p.src)
	most := uint16(fleetMTU - 40 - f.outerLen())
	if !f.client.Is4() {
		most -= 20
	}
	for _, before := range [][]byte{nil, {1}, {3, 3, 7}, {4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7}} {
		for mss, want := range map[uint16]uint16{1460: most, 9000: most, most: most, most - 1: most - 1, 100: 100} {
			_, made := f.nodes[home].run(t, out, uplink, withMSS(t, answer.with("SA"), before, mss))
			if expect := withMSS(t, p.to(p.dst, p.src).with("SA"), before, want); !bytes.Equal(made, expect) {
				t.Errorf("options %v and segments of %d bytes: got %s\nwant %s", before, mss, dump(made), dump(expect))
			}
		}
	}
	_, made := f.nodes[home].run(t, out, uplink, withMSS(t, answer.with("A"), nil, 9000))
	if expect := withMSS(t, p.to(p.dst, p.src).with("A"), nil, 9000); !bytes.Equal(made, expect) {
		t.Errorf("without SYN: got %s\nwant %s", dump(made), dump(expect))
	}
}

// setUsable says whether a node may carry what begins to another.
func (n *fleetNode) setUsable(t *testing.T, f *fleet, other int, usable bool) {
	t.Helper()
	n.judge(t, f, other, usable, false)
}

// judge says what a node thinks of another.
func (n *fleetNode) judge(t *testing.T, f *fleet, other int, usable, silent bool) {
	t.Helper()
	p := n.knows(f, other)
	p.Usable, p.Silent = usable, silent
	n.apply(t, []plan.Op{plan.PutPeer{ID: n.peer(other), Peer: p}})
}

func notUsableGoesByAddress(t *testing.T, f *fleet) {
	f.serve(t, 2)
	began, home, _ := f.begin(t, 0, 40001)
	f.nodes[0].setUsable(t, f, 1, false)
	defer f.nodes[0].setUsable(t, f, 1, true)
	p := f.packet(40000, "S", 10)
	f.nodes[0].becomes(t, "what begins", in, uplink, p, p.to(p.src, f.addrOf(2)))
	f.wants(t, 0, began.with("A"), "delivered", home, "what had begun")
	f.nodes[0].setUsable(t, f, 1, true)
	f.nodes[0].becomes(t, "what went by the address goes on so", in, uplink, p.with("A"), p.with("A").to(p.src, f.addrOf(2)))
}

func aConnectionIsFound(t *testing.T, f *fleet) {
	f.serve(t, 0, 1, 2, 3)
	type conn struct {
		packet
		home int
	}
	var all []conn
	for port := range uint16(40) {
		p, home, _ := f.begin(t, int(port)%3, 40000+port)
		all = append(all, conn{p, home})
	}
	for step, backends := range [][]int{{0, 1, 2, 3, 4, 5}, {4, 5}, {2, 4}, {0, 1, 2, 3}} {
		for _, n := range f.nodes {
			n.learn(t, backends...)
		}
		for i, c := range all {
			got := f.wants(t, (i+step)%3, c.with("A"), "delivered", c.home, fmt.Sprintf("step %d", step))
			if got.frames > 4 {
				t.Errorf("%d frames for one packet", got.frames)
			}
		}
	}
}

// livingConn is a connection, or a flow of datagrams, and where it lives.
type livingConn struct {
	packet
	home, backend int
}

// settleEverywhere begins connections at all nodes, in slots that then all nodes had once and the last one has now.
func (f *fleet) settleEverywhere(t *testing.T) (all []livingConn) {
	f.serve(t, 0, 1, 2, 3, 4, 5)
	for port := range uint16(30) {
		p, home, backend := f.begin(t, int(port)%3, 40000+port)
		all = append(all, livingConn{p, home, backend})
	}
	for _, backends := range [][]int{{0, 1}, {2, 3}, {4, 5}} {
		for _, n := range f.nodes {
			n.learn(t, backends...)
		}
	}
	return all
}

// setSilent says whether a node takes another for dead.
func (n *fleetNode) setSilent(t *testing.T, f *fleet, other int, silent bool) {
	t.Helper()
	n.silent[other] = silent
	n.judge(t, f, other, !silent, silent)
}

func aConnectionIsFoundPastADeadNode(t *testing.T, f *fleet) {
	for dead, node := range f.nodes {
		all := f.settleEverywhere(t)
		f.dead = node
		for _, n := range f.nodes {
			if n != node {
				n.setSilent(t, f, dead, true)
			}
		}
		for i, c := range all {
			got := f.enter(t, (dead+1+i%2)%3, c.with("A").frame(t))
			switch {
			case c.home == dead && got.what != "lost":
				t.Errorf("node %d is dead, or silent: its connection is %s at %d", dead, got.what, got.node)
			case c.home != dead && (got.what != "delivered" || got.node != c.home):
				t.Errorf("node %d is dead: what lives at node %d is %s at %d: %s", dead, c.home, got.what, got.node, dump(got.frame))
			}
		}
		f.dead = nil
		f.allAnswer(t)
	}
}

// Whichever nodes take which others for dead, what lives there goes on, and what nobody knows is
// reset by the home of its slot alone.
func aNodeThatIsTakenForDeadKeepsItsConnections(t *testing.T, f *fleet) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		for opinions := range 1 << 6 {
			all := f.settleEverywhere(t)
			for pair, n := range []int{0, 0, 1, 1, 2, 2} {
				f.nodes[n].setSilent(t, f, []int{1, 2, 0, 2, 0, 1}[pair], opinions>>pair&1 != 0)
			}
			for _, n := range f.nodes {
				n.ageSlotChanges(t, 6)
			}
			for i, c := range all[:6] {
				if protocol == lb.UDP && f.nodes[i%3].silent[2] {
					continue // who has the slot is not usable: datagrams go by the node's address
				}
				got := f.wants(t, i%3, c.with("A"), "delivered", c.home, fmt.Sprintf("opinions %06b", opinions))
				if got.frames > 8 {
					t.Errorf("%d frames for one packet", got.frames)
				}
			}
			if protocol == lb.TCP {
				got := f.enter(t, opinions%3, f.packet(41000, "A", 0).frame(t))
				if got.what == "delivered" || got.what == "reset" && got.node != 2 || got.frames > 8 {
					t.Errorf("opinions %06b: nobody's packet is %s at %d after %d frames", opinions, got.what, got.node, got.frames)
				}
			}
			f.allAnswer(t)
		}
	}
}

// allAnswer has every node take all others for alive.
func (f *fleet) allAnswer(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		for other := range f.nodes {
			if other != n.number {
				n.setSilent(t, f, other, false)
			}
		}
	}
}

// The last node knows of one owner of each slot, itself; a connection began at another's, and passes by.
func aNodeThatLagsTakesNoConnection(t *testing.T, f *fleet) {
	for _, order := range [][3]int{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}} {
		owner, in, lags := order[0], order[1], order[2]
		f.serve(t, backendsOfNode*lags)
		for _, next := range []int{owner, in} {
			f.nodes[owner].learn(t, backendsOfNode*next)
			f.nodes[in].learn(t, backendsOfNode*next)
			if next == owner {
				f.begin(t, owner, 40000)
			}
		}
		if got := f.enter(t, in, f.packet(40000, "A", 0).frame(t)); got.what != "dropped" && (got.what != "delivered" || got.node != owner) {
			t.Errorf("a connection of node %d is %s at node %d", owner, got.what, got.node)
		}
	}
}

func nobodysIsReset(t *testing.T, f *fleet) {
	f.serve(t, 0, 1, 2, 3)
	for _, n := range f.nodes {
		n.learn(t, 0)
		n.learn(t, 1)
		n.learn(t, 3)
	}
	for port := range uint16(20) {
		if got := f.enter(t, 2, f.packet(41000+port, "A", 0).frame(t)); got.frames > 3 {
			t.Errorf("its slot has had owners at two homes: %d frames for a packet that is %s", got.frames, got.what)
		}
	}
	f.serve(t, 0, 1, 2, 3, 4, 5)
	for _, n := range f.nodes {
		n.learn(t, 0, 2)
		n.learn(t, 4)
	}
	for port := range uint16(20) {
		got := f.enter(t, int(port)%3, f.packet(41000+port, "A", 0).frame(t))
		if got.what != "dropped" || got.frames > 4 {
			t.Errorf("tables have changed just now: it is %s after %d frames", got.what, got.frames)
		}
	}
	for _, n := range f.nodes {
		n.ageSlotChanges(t, 6)
	}
	for port := range uint16(20) {
		before := f.refused(t)
		got := f.enter(t, int(port)%3, f.packet(41000+port, "A", 0).frame(t))
		if n := f.refused(t) - before; n != 1 {
			t.Errorf("nodes count and tell of %d refusals of one packet", n)
		}
		if got.what == "delivered" || got.frames > 4 {
			t.Errorf("all nodes know the tables: it is %s after %d frames", got.what, got.frames)
		}
		if got.what == "reset" && got.node != 2 {
			t.Errorf("node %d resets, which is no home of the slot", got.node)
		}
		asked := f.outerOf(0, 1, f.packet(41000+port, "A", 0).frame(t), 0, 8)
		if verdict, made := f.nodes[1].run(t, in, uplink, asked); verdict == redirect && isCarried(made) {
			t.Errorf("what has been at eight homes goes on: %s", dump(made))
		}
		asked = f.outerOf(0, 1, f.packet(41000+port, "A", 0).frame(t), 0, 1)
		want, whole := f.nodes[1].run(t, in, uplink, asked)
		if verdict, made := f.nodes[1].run(t, in, uplink, segmentOf(asked, 7)); verdict != want || !bytes.Equal(made, whole) {
			t.Errorf("a segment goes another way than what it was cut from: %s, not %s", dump(made), dump(whole))
		}
	}
}

// refused is how many packets all nodes have refused.
func (f *fleet) refused(t *testing.T) (sum uint64) {
	t.Helper()
	for _, n := range f.nodes {
		for _, count := range n.refusals(t) {
			sum += count
		}
	}
	return sum
}

// segmentOf returns a frame as it is one of those into which a large one was cut: with
// another ID, where there is one.
func segmentOf(frame []byte, number uint16) []byte {
	out := slices.Clone(frame)
	if h := out[ethernetLen:][:20]; h[0]>>4 == 4 {
		binary.BigEndian.PutUint16(h[4:], binary.BigEndian.Uint16(h[4:])+number)
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], sum16(h))
	}
	return out
}

// isCarried says whether a frame has an outer header.
func isCarried(frame []byte) bool {
	v, ok := parseFrame(frame)
	_, dst, _ := ends(frame)
	return ok && (v.protocol == 4 || v.protocol == 41 || v.protocol == 17 && dst.Port() == carryPort)
}

// ageSlotChanges lets slots have changed so many seconds before.
func (n *fleetNode) ageSlotChanges(t *testing.T, seconds uint64) {
	t.Helper()
	m := n.tables["slot_changes"]
	offset := fieldOffset(t, m, "slot_change", "at_ns")
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := map[string][]byte{}
	for entries := m.Iterate(); entries.Next(&key, &value); {
		all[string(key)] = bytes.Clone(value)
	}
	for k, v := range all {
		at := v[offset:]
		binary.NativeEndian.PutUint64(at, binary.NativeEndian.Uint64(at)-seconds*1e9)
		must(t, m.Put([]byte(k), v))
	}
}

func sourceRangesHold(t *testing.T, f *fleet) {
	f.serve(t, 2)
	view := plan.View{Table: plan.Table{Offset: firstFleetSlot, Size: fleetSlots}, Algorithm: lb.Stable}
	for _, n := range f.nodes[:2] {
		n.apply(t, []plan.Op{
			plan.PutSourceRange{Range: plan.SourceRange{Service: fleetService, Prefix: netip.PrefixFrom(f.other, f.other.BitLen())}},
			plan.PutFrontend{Key: lb.AddrPort{Addr: f.vip, Port: 80, Protocol: f.protocol}, Value: plan.Frontend{
				Service: fleetService, Kind: lb.LoadBalancerIP, Members: plan.Table{Offset: fleetMembersAt, Size: 6}, Carried: true, Filtered: true,
				Views: [lb.NumViews]plan.View{lb.Internal: view, lb.External: view},
			}},
		})
	}
	p := f.packet(40000, "S", 10)
	f.nodes[0].refused(t, "where it comes in", in, uplink, p)
	before := f.nodes[1].drops(t)
	if verdict, _ := f.nodes[1].run(t, in, uplink, f.outerOf(0, 1, p.frame(t), 0, 0)); verdict != drop || f.nodes[1].drops(t) != before+1 {
		t.Errorf("at home: verdict %d", verdict)
	}
	p.src = at(f.other, 40000)
	f.wants(t, 0, p, "delivered", 1, "a client within the range")
	for _, n := range f.nodes[:2] {
		n.apply(t, []plan.Op{plan.DeleteSourceRange{Range: plan.SourceRange{Service: fleetService, Prefix: netip.PrefixFrom(f.other, f.other.BitLen())}}})
	}
}

// TestNoConnectionIsLostWhileTablesDiffer makes changes that each node learns at another
// time, while packets of connections come in anywhere: each is delivered to the backend
// that has the connection, or dropped while tables differ, never reset, and never more
// than one frame for each owner and one more. Each node leaves out whom it likes meanwhile: that
// makes it twice as many, and nothing else.
func TestNoConnectionIsLostWhileTablesDiffer(t *testing.T) {
	f := newFleet(t, 3, false, func(*datapath.Config) {})
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(protocol, " seed ", seed), func(t *testing.T) {
				f.protocol = protocol
				f.churn(t, rand.New(rand.NewPCG(seed, 7)))
			})
		}
	}
}

func (f *fleet) churn(t *testing.T, r *rand.Rand) {
	f.allAnswer(t)
	opinions := rand.New(rand.NewPCG(3, 7)) // of its own: what else happens is as without
	f.book = []book{v4, v6}[r.IntN(2)]
	backends := []int{0, 2}
	f.serve(t, backends...)
	var conns []livingConn
	pending := make([][][]int, len(f.nodes)) // changes that a node has yet to learn
	agreed := func() bool { return len(pending[0])+len(pending[1])+len(pending[2]) == 0 }
	dropped, sent := 0, 0
	for step := range 3000 {
		if n := opinions.IntN(24); n < 3 {
			f.nodes[n].judge(t, f, (n+1+opinions.IntN(2))%3, true, opinions.IntN(2) == 0)
		}
		switch n := r.IntN(len(f.nodes)); r.IntN(30) {
		case 0: // a change, at most two of which nodes have yet to learn
			if max(len(pending[0]), len(pending[1]), len(pending[2])) < 2 {
				backends = changed(r, backends, backendsOfNode*len(f.nodes))
				for i := range pending {
					pending[i] = append(pending[i], backends)
				}
			}
		case 1, 2, 3, 4:
			if len(pending[n]) > 0 {
				f.nodes[n].learn(t, pending[n][0]...)
				pending[n] = pending[n][1:]
			}
		case 5, 6:
			if f.protocol == lb.UDP && !agreed() {
				continue // a datagram does not say that it begins something
			}
			f.allAnswer(t)
			if first := f.packet(uint16(20000+step), "S", 0); f.enter(t, n, first.frame(t)).what == "dropped" && !agreed() {
				continue // it comes again
			}
			p, home, backend := f.begin(t, n, uint16(20000+step))
			conns = append(conns, livingConn{p, home, backend})
		default:
			if len(conns) == 0 {
				continue
			}
			c := conns[r.IntN(len(conns))]
			got := f.enter(t, n, c.with("A").frame(t))
			sent++
			_, dst, _ := ends(got.frame)
			switch {
			case got.what == "delivered" && f.numberOf(dst) == c.backend:
			case got.what == "dropped" && !agreed():
				dropped++
			default:
				t.Fatalf("step %d, tables agree: %v: a packet of a connection of backend %d is %s at node %d: %s", step, agreed(), c.backend, got.what, got.node, dump(got.frame))
			}
			if got.frames > 8 {
				t.Fatalf("%d frames for one packet", got.frames)
			}
		}
	}
	t.Logf("%d packets of %d connections, %d dropped while tables differed", sent, len(conns), dropped)
}

// changed is another set of backends: one comes, or one drains.
func changed(r *rand.Rand, backends []int, of int) []int {
	out := append([]int(nil), backends...)
	for {
		b := r.IntN(of)
		for i, have := range out {
			if have == b {
				if len(out) == 1 {
					b = -1
					break
				}
				return append(out[:i], out[i+1:]...)
			}
		}
		if b >= 0 {
			return append(out, b)
		}
	}
}
