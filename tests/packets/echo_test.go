package packets

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// answerFrom is what node 1 is to send back to node 0, from an address.
func (f *fleet) answerFrom(from netip.Addr) packet {
	return packet{src: at(from, carryPort), dst: at(f.nodes[0].addr, carryPort), protocol: lb.UDP, payload: []byte("an odd number of bytes.")}
}

// questionFor is that with so many bytes behind it, as node 0 carries it.
func (f *fleet) questionFor(t *testing.T, answer packet, zeros int) []byte {
	t.Helper()
	return f.outerOf(0, 1, append(answer.frame(t), make([]byte, zeros)...), 0, 0)
}

// questionsComeBack asks from the address of the node, and from that of the Service.
func questionsComeBack(t *testing.T, f *fleet) {
	f.serve(t, 2)
	froms := []netip.Addr{f.nodes[1].addr}
	if f.vip.Is4() != f.overV6 {
		froms = append(froms, f.vip)
	}
	for _, from := range froms {
		for _, zeros := range []int{0, 1, 1300} {
			answer := f.answerFrom(from)
			want := answer.frame(t)
			macs := slices.Clone(want[:12])
			copy(want, macs[6:])
			copy(want[6:], macs[:6])
			verdict, made := f.nodes[1].run(t, in, uplink, f.questionFor(t, answer, zeros))
			if verdict != redirect || !bytes.Equal(made, want) {
				t.Errorf("from %s, with %d bytes behind it: verdict %d\ngot  %s\nwant %s", from, zeros, verdict, dump(made), dump(want))
			}
		}
	}
}

// othersDoNotComeBack has what is no question dropped: within the outer header of a peer nothing else goes to itself.
func othersDoNotComeBack(t *testing.T, f *fleet) {
	f.serve(t, 2)
	good := f.answerFrom(f.nodes[1].addr)
	otherPort, fromPort, tcp, stranger, itself, short := good, good, good, good, good, good
	otherPort.dst = at(f.nodes[0].addr, carryPort+1)
	fromPort.src = at(f.nodes[1].addr, carryPort+1)
	tcp.protocol, tcp.flags = lb.TCP, "S"
	stranger.src = at(nodeAddr(100, f.overV6), carryPort)
	itself.src = at(f.nodes[0].addr, carryPort)
	short.fragment = &fragment{size: 16}
	for what, p := range map[string]packet{
		"to another port": otherPort, "from another port": fromPort, "TCP": tcp, "from a stranger": stranger, "from who asks": itself, "a fragment": short,
	} {
		if verdict, made := f.nodes[1].run(t, in, uplink, f.questionFor(t, p, 10)); verdict != drop {
			t.Errorf("%s: verdict %d for %s", what, verdict, dump(made))
		}
	}
	third := good
	third.dst = at(f.nodes[2].addr, carryPort)
	for what, frame := range map[string][]byte{
		"for another node":    f.questionFor(t, third, 10),
		"carried by no peer":  f.outerBetween(nodeAddr(100, f.overV6), f.nodes[1].addr, good.frame(t), 0, 0),
		"for who is not here": f.outerOf(0, 2, good.frame(t), 0, 0),
	} {
		if verdict, made := f.nodes[1].run(t, in, uplink, frame); verdict != pass || !bytes.Equal(made, frame) {
			t.Errorf("%s: verdict %d for %s", what, verdict, dump(made))
		}
	}
}

// questionsAreLimited has a node that has sent nearly as many answers as it may.
func questionsAreLimited(t *testing.T, f *fleet) {
	const most, left = 1000, 3
	f.serve(t, 2)
	n, question := f.nodes[1], f.questionFor(t, f.answerFrom(f.nodes[1].addr), 0)
	limited := n.counters(t)["echo_limited"]
	n.setEchoes(t, -3600, most-left)
	sent := 0
	for range 2 * left {
		if verdict, _ := n.run(t, in, uplink, question); verdict == redirect {
			sent++
		}
	}
	if counted := n.counters(t)["echo_limited"] - limited; sent != left || counted != left {
		t.Errorf("%d of %d questions come back, %d are counted as limited; want %d of each", sent, 2*left, counted, left)
	}
	n.setEchoes(t, 1, most)
	if verdict, _ := n.run(t, in, uplink, question); verdict != redirect {
		t.Errorf("a second later: verdict %d", verdict)
	}
}

// setEchoes says how many answers each CPU has sent since so many seconds.
func (n *fleetNode) setEchoes(t *testing.T, seconds int64, echoes uint64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "reset_budgets"), nil)
	must(t, err)
	defer m.Close()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	budget := binary.NativeEndian.AppendUint64(nil, uint64(now.Nano()-seconds*1e9))
	budget = binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(budget, 0), echoes)
	all := make([][]byte, ebpf.MustPossibleCPU())
	for cpu := range all {
		all[cpu] = budget
	}
	must(t, m.Put(uint32(0), all))
}

// whoIsNoPeerIsNotAsked has questions go nowhere.
func whoIsNoPeerIsNotAsked(t *testing.T, f *fleet) {
	for _, peer := range []netip.Addr{nodeAddr(100, f.overV6), f.nodes[0].addr} {
		sent, err := f.nodes[0].dp.Ask(plan.Echo{Peer: peer, Nonce: 1})
		if sent || err != nil {
			t.Errorf("%s: sent %v, %v", peer, sent, err)
		}
	}
}

// echoOf is the echo of a question of node 0 to node 1, from an address.
func (f *fleet) echoOf(from netip.Addr, nonce uint64, peer, question uint32) packet {
	p := f.answerFrom(from)
	p.payload = binary.NativeEndian.AppendUint64(nil, nonce)
	p.payload = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(p.payload, peer), question)
	return p
}

// echoesAreTaken has the node that asked take echoes before its stack does, and nothing else.
func echoesAreTaken(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, peer := f.nodes[0], f.nodes[1].addr
	id, service := n.peer(1), f.vip
	if service.Is4() != peer.Is4() {
		service = nodeAddr(112, f.overV6)
	}
	round := plan.Echo{Peer: peer, Nonce: 1<<63 | 5, Service: service, Question: plan.EchoOfService}
	asks := func() {
		if _, err := n.dp.Ask(round); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(what string, p packet, bits uint64) {
		t.Helper()
		frame := p.frame(t)
		verdict, made := n.run(t, in, uplink, frame)
		if taken := verdict == drop; taken != (bits != 0) || !taken && !bytes.Equal(made, frame) {
			t.Errorf("%s: verdict %d for %s", what, verdict, dump(made))
		}
		if got := n.dp.TakeEchoes(peer); got != bits {
			t.Errorf("%s: %b came back, want %b", what, got, bits)
		}
	}
	elsewhere := nodeAddr(113, f.overV6)
	n.apply(t, []plan.Op{plan.PutAddress{Addr: elsewhere, Kind: plan.NodeAddress}})
	defer n.apply(t, []plan.Op{plan.DeleteAddress{Addr: elsewhere}})
	round.Nonce = 0
	asks() // as before the first round
	wants("no nonce before the first round", f.echoOf(peer, 0, id, 0), 0)
	round.Nonce = 1<<63 | 5
	asks()
	for _, question := range []uint32{0, 2, 63} {
		wants("an echo", f.echoOf(peer, round.Nonce, id, question), 1<<question)
	}
	wants("the echo of the Service", f.echoOf(service, round.Nonce, id, 1), 2)
	toPort, fromPort, toOther, short := f.echoOf(peer, round.Nonce, id, 0), f.echoOf(peer, round.Nonce, id, 0), f.echoOf(peer, round.Nonce, id, 0), f.echoOf(peer, round.Nonce, id, 0)
	toPort.dst, fromPort.src = at(n.addr, carryPort+1), at(peer, carryPort+1)
	toOther.dst, short.payload = at(elsewhere, carryPort), short.payload[:15]
	for what, p := range map[string]packet{
		"another nonce": f.echoOf(peer, round.Nonce+1, id, 0), "no nonce": f.echoOf(peer, 0, id, 0), "another peer": f.echoOf(peer, round.Nonce, n.peer(2), 0),
		"no peer": f.echoOf(peer, round.Nonce, 1<<30, 0), "the own ID": f.echoOf(peer, round.Nonce, plan.HomeHere, 0), "number 64": f.echoOf(peer, round.Nonce, id, 64),
		"from another node": f.echoOf(f.nodes[2].addr, round.Nonce, id, 0), "from the Service": f.echoOf(service, round.Nonce, id, 0), "not from the Service": f.echoOf(peer, round.Nonce, id, 1),
		"to another port": toPort, "from another port": fromPort, "to another address": toOther, "cut short": short,
	} {
		wants(what, p, 0)
	}
	merged := f.echoOf(peer, round.Nonce, id, 2) // by a card
	for question := range plan.MostEchoes {
		merged.payload = append(merged.payload, f.echoOf(peer, round.Nonce-uint64(question%2), id, question).payload...)
	}
	if r, err := n.trySegments(in, uplink, merged.frame(t), 16); err != nil || r.verdict != drop {
		t.Errorf("merged echoes: verdict %d, %v", r.verdict, err)
	}
	if got, want := n.dp.TakeEchoes(peer), uint64(0x5555555555555555); got != want {
		t.Errorf("merged echoes: %b came back, want %b", got, want)
	}
	n.run(t, in, uplink, f.echoOf(peer, round.Nonce, id, 3).frame(t))
	asks()
	wants("another question of the round", f.echoOf(peer, round.Nonce, id, 0), 1|1<<3)
	n.run(t, in, uplink, f.echoOf(peer, round.Nonce, id, 3).frame(t))
	round.Nonce++
	asks()
	wants("a round later", f.echoOf(peer, round.Nonce, id, 0), 1)
	if got := n.dp.TakeEchoes(nodeAddr(100, f.overV6)); got != 0 {
		t.Errorf("%b came back from no peer", got)
	}
}
