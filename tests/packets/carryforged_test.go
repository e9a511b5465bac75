package packets

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Where what leaves has come by: a pod with programs at its device, one without, the node itself.
const (
	byPod     = podEnd
	byStrange = "no device of the datapath"
	byNode    = "the node itself"
)

// leave has the program at the way out see a frame that came by a device, which may be of segments.
func (r *rig) leave(t *testing.T, came string, frame []byte, segment uint32) (verdict uint32, made []byte, forged uint64) {
	t.Helper()
	ctx := r.context(uplink)
	index := r.devices[came].Index
	if came == byStrange {
		index = 1 << 20
	}
	binary.NativeEndian.PutUint32(ctx[36:], index) // ingress_ifindex
	if segment > 0 {
		binary.NativeEndian.PutUint32(ctx[164:], uint32(len(frame))/segment+1) // gso_segs
		binary.NativeEndian.PutUint32(ctx[176:], segment)                      // gso_size
	}
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: ctx}
	was := r.counters(t)["carry_forged"]
	verdict, err := r.programs[out].Run(opts)
	must(t, err)
	return verdict, opts.DataOut, r.counters(t)["carry_forged"] - was
}

// forgery is a frame in which somebody sends what a node may carry alone, and whom that is not taken from.
type forgery struct {
	what  string
	frame []byte
	from  []string
	// segment is the size of what a device cuts it into, 0: it does not.
	segment uint32
}

// forgeries are what is dropped.
func (f *fleet) forgeries(t *testing.T) []forgery {
	p := f.packet(40000, "S", 10)
	anybody, pods := []string{byPod, byStrange, byNode}, []string{byPod, byStrange}
	first := make([]byte, len(p.datagram(t))+8) // with the proof before it so long, and one of zeros behind it
	both := append(bytes.Clone(p.ethernet()), append(first, p.datagram(t)...)...)
	elsewhere := nodeAddr(100, f.overV6)
	return []forgery{
		{"to a peer", f.outerOf(0, 1, p.frame(t), 0, 0), anybody, 0},
		{"from an address that is yet to be the node's", f.outerBetween(elsewhere, f.nodes[1].addr, p.frame(t), 0, 0), anybody, 0},
		{"to another port of the Service", f.outerOf(0, 1, p.to(p.src, at(f.vip, 81)).frame(t), 0, 0), anybody, 0},
		{"to an address that may be another one of a peer", f.outerBetween(f.nodes[0].addr, elsewhere, p.frame(t), 0, 0), pods, 0},
		{"a question", f.questionFor(t, f.answerFrom(f.nodes[1].addr), 100), pods, 0},
		{"a question from an address that is yet to be the node's", f.outerBetween(elsewhere, f.nodes[1].addr, f.answerFrom(f.nodes[1].addr).frame(t), 0, 0), pods, 0},
		{"with a tag of a VLAN", withTag(f.outerOf(0, 1, p.frame(t), 0, 0)), anybody, 0},
		{"behind a segment that says nothing", f.outerOf(0, 1, both, 0, 0), anybody, uint32(len(first))},
		{"behind more headers", f.behindMore(t, p), anybody, 0},
	}
}

// behindMore is a packet within an outer header that has options, or another header before UDP.
func (f *fleet) behindMore(t *testing.T, inner packet) []byte {
	t.Helper()
	outer := packet{src: at(f.nodes[0].addr, firstFlowPort), dst: at(f.nodes[1].addr, carryPort), protocol: lb.UDP}
	outer.payload = append(make([]byte, 8), inner.datagram(t)...)
	if f.overV6 {
		outer.headers = []header{{60, make([]byte, 8)}}
	} else {
		outer.options = []byte{1, 1, 1, 1}
	}
	return outer.frame(t)
}

// withTag is a frame with a tag of a VLAN in it.
func withTag(frame []byte) []byte {
	return bytes.Join([][]byte{frame[:12], {0x81, 0, 0, 100}, frame[12:]}, nil)
}

func forgedDoesNotLeave(t *testing.T, f *fleet) {
	f.serve(t, 2)
	for _, g := range f.forgeries(t) {
		for _, from := range g.from {
			if verdict, _, counted := f.nodes[0].leave(t, from, g.frame, g.segment); verdict != drop || counted != 1 {
				t.Errorf("%s, from %s: verdict %d, %d counted", g.what, from, verdict, counted)
			}
		}
	}
}

// ownLeaves has what a node carries itself leave, as it was made, and what it passes on as a router.
func ownLeaves(t *testing.T, f *fleet) {
	f.serve(t, 2)
	verdict, own := f.nodes[0].run(t, in, uplink, f.packet(40000, "S", 10).frame(t))
	if verdict != redirect {
		t.Fatalf("it is not carried: verdict %d", verdict)
	}
	others := f.outerOf(1, 2, f.packet(40000, "S", 10).frame(t), 0, 0)
	for _, frame := range [][]byte{own, others} {
		for _, came := range []string{uplink, tunnel} {
			f.wantsLeft(t, "what came by "+came, came, frame, 0)
		}
	}
}

// carriedBeginsNoFlow has carried packets and questions leave while the filter of flows says nothing: then
// all else of the node begins a flow.
func carriedBeginsNoFlow(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, peer := f.nodes[0], f.nodes[1].addr
	own := packet{src: at(n.addr, 50000), dst: at(peer, carryPort+1), protocol: lb.UDP}
	echo := packet{src: at(n.addr, carryPort), dst: at(peer, carryPort), protocol: lb.UDP, payload: f.answerFrom(peer).payload}
	for _, c := range []struct {
		what, came string
		frame      []byte
		made       int
	}{
		{"another datagram of the node", byNode, own.frame(t), 2},
		{"a carried packet", uplink, f.outerOf(0, 1, f.packet(40001, "S", 10).frame(t), 0, 0), 0},
		{"a question", byNode, f.questionFor(t, f.answerFrom(peer), 100), 0},
		{"an echo", uplink, echo.frame(t), 0},
	} {
		n.forget(t)
		n.fillFlowFilter(t)
		f.wantsLeft(t, c.what, c.came, c.frame, 0)
		if made := n.flows(t); made != c.made {
			t.Errorf("%s makes %d directions of flows, want %d", c.what, made, c.made)
		}
	}
}

// fillFlowFilter sets all bits of the filter: there may be flows with any end.
func (r *rig) fillFlowFilter(t *testing.T) {
	t.Helper()
	filter := r.tables["flow_filter"]
	for i := range filter.MaxEntries() {
		must(t, filter.Put(i, bytes.Repeat([]byte{0xff}, int(filter.ValueSize()))))
	}
}

// othersLeave has all else leave: tunnels of others, questions, probes of backends outside.
func othersLeave(t *testing.T, f *fleet) {
	f.serve(t, 2)
	p := f.packet(40000, "S", 10)
	question := packet{src: at(f.nodes[0].addr, 40000), dst: at(f.nodes[1].addr, carryPort), protocol: lb.UDP, payload: []byte("no packet of IP, and more than twenty bytes, such as an IPv4 header has")}
	otherPort := question
	otherPort.dst, otherPort.payload = at(f.nodes[1].addr, carryPort+1), p.datagram(t)
	short := question
	short.payload = p.datagram(t)[:16]
	toPod := p.to(p.src, f.addrOf(2)).frame(t)
	for what, frame := range map[string][]byte{
		"a tunnel":           f.outerOf(0, 1, toPod, 0, 0),
		"a question":         question.frame(t),
		"another port":       otherPort.frame(t),
		"no whole IP header": short.frame(t),
		"no tunnel":          p.to(p.src, f.addrOf(2)).frame(t),
	} {
		for _, from := range []string{byPod, byStrange, byNode, uplink} {
			f.wantsLeft(t, what, from, frame, 0)
		}
	}
	outside := nodeAddr(100, f.overV6)
	f.wantsLeft(t, "a probe in the way of clients", byNode, f.outerBetween(f.nodes[0].addr, outside, p.frame(t), 0, 0), 0)
	f.wantsLeft(t, "a question that is carried", byNode, f.questionFor(t, f.answerFrom(f.nodes[1].addr), 100), 0)
	f.wantsLeft(t, "segments", byPod, f.outerOf(0, 1, slices.Concat(toPod, make([]byte, 8), toPod[ethernetLen:]), 0, 0), uint32(len(toPod)-ethernetLen+8))
}

// wantsLeft has a frame leave as it is.
func (f *fleet) wantsLeft(t *testing.T, what, came string, frame []byte, segment uint32) {
	t.Helper()
	if verdict, made, counted := f.nodes[0].leave(t, came, frame, segment); verdict != pass || counted != 0 || !bytes.Equal(made, frame) {
		t.Errorf("%s, from %s: verdict %d, %d counted as forged, made %s", what, came, verdict, counted, dump(made))
	}
}

// questionsOfANodeWithAService has an address of the node be one of a Service, too: questions still leave.
func questionsOfANodeWithAService(t *testing.T, f *fleet) {
	f.serve(t, 2)
	question := f.questionFor(t, f.answerFrom(f.nodes[1].addr), 100)
	n := f.nodes[0]
	n.apply(t, []plan.Op{plan.PutAddress{Addr: n.addr, Kind: plan.NodeAddress | plan.FrontendAddress}})
	f.wantsLeft(t, "a question", byNode, question, 0)
	n.apply(t, []plan.Op{plan.PutAddress{Addr: n.addr, Kind: plan.NodeAddress}})
}

// carriedToANodeWithAService leaves for a router, by the device that it came by.
func carriedToANodeWithAService(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, peer, stranger, router := f.nodes[0], nodeAddr(101, f.overV6), nodeAddr(102, f.overV6), nodeAddr(103, f.overV6)
	n.apply(t, []plan.Op{plan.PutAddress{Addr: peer, Kind: plan.FrontendAddress}, plan.PutAddress{Addr: stranger, Kind: plan.FrontendAddress}, plan.PutPeerAddress{Addr: peer, ID: 1}})
	defer n.apply(t, []plan.Op{plan.DeletePeerAddress{Addr: peer}, plan.DeleteAddress{Addr: peer}, plan.DeleteAddress{Addr: stranger}})
	n.routeTo(t, router)
	n.routeBy(t, router, peer, stranger)
	frame := f.packet(40000, "S", 10).frame(t)
	f.wantsLeft(t, "carried", uplink, f.outerBetween(n.addr, peer, frame, 0, 0), 0)
	if verdict, _, _ := n.leave(t, uplink, f.outerBetween(n.addr, stranger, frame, 0, 0), 0); verdict != drop {
		t.Errorf("to another address of a Service: verdict %d, want %d", verdict, drop)
	}
}
