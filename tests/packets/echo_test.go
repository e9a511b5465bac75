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

// asking is node 0, which has asked node 1.
type asking struct {
	*fleet
	*fleetNode
	home, service netip.Addr // that answer
	round         plan.Echo
}

// newAsking has node 0 ask, with a nonce.
func (f *fleet) newAsking(t *testing.T, nonce uint64) asking {
	t.Helper()
	f.serve(t, 2)
	a := asking{fleet: f, fleetNode: f.nodes[0], home: f.nodes[1].addr, service: f.vip}
	if a.service.Is4() != a.home.Is4() {
		a.service = nodeAddr(112, f.overV6)
	}
	a.asks(t, nonce)
	return a
}

func (a *asking) asks(t *testing.T, nonce uint64) {
	t.Helper()
	a.round = plan.Echo{Peer: a.home, Nonce: nonce, Service: a.service, Question: plan.EchoOfService}
	if _, err := a.dp.Ask(a.round); err != nil {
		t.Fatal(err)
	}
}

// echo is the echo of a question of the round, from an address.
func (a *asking) echo(from netip.Addr, question uint32) packet {
	return a.echoOf(from, a.round.Nonce, a.peer(1), question)
}

// wants has a packet come in, and wants bits for echoes in it; 0: the packet passes.
func (a *asking) wants(t *testing.T, what string, p packet, bits uint64) {
	t.Helper()
	frame := p.frame(t)
	verdict, made := a.run(t, in, uplink, frame)
	if taken := verdict == drop; taken != (bits != 0) || !taken && !bytes.Equal(made, frame) {
		t.Errorf("%s: verdict %d for %s", what, verdict, dump(made))
	}
	if got := a.dp.TakeEchoes(a.home); got != bits {
		t.Errorf("%s: %b came back, want %b", what, got, bits)
	}
}

// echoesAreTaken has the node that asked take echoes before its stack does.
func echoesAreTaken(t *testing.T, f *fleet) {
	a := f.newAsking(t, 1<<63|5)
	for _, question := range []uint32{0, 2, 63} {
		a.wants(t, "an echo", a.echo(a.home, question), 1<<question)
	}
	a.wants(t, "the echo of the Service", a.echo(a.service, plan.EchoOfService), 1<<plan.EchoOfService)
	merged := a.echo(a.home, 2) // by a card
	for question := range plan.MostEchoes {
		merged.payload = append(merged.payload, a.echoOf(a.home, a.round.Nonce-uint64(question%2), a.peer(1), question).payload...)
	}
	if r, err := a.trySegments(in, uplink, merged.frame(t), 16); err != nil || r.verdict != drop {
		t.Errorf("merged echoes: verdict %d, %v", r.verdict, err)
	}
	if got, want := a.dp.TakeEchoes(a.home), uint64(0x5555555555555555); got != want {
		t.Errorf("merged echoes: %b came back, want %b", got, want)
	}
	a.run(t, in, uplink, a.echo(a.home, 3).frame(t))
	a.asks(t, a.round.Nonce)
	a.wants(t, "another question of the round", a.echo(a.home, 0), 1|1<<3)
	a.run(t, in, uplink, a.echo(a.home, 3).frame(t))
	a.asks(t, a.round.Nonce+1)
	a.wants(t, "a round later", a.echo(a.home, 0), 1)
	if got := a.dp.TakeEchoes(nodeAddr(100, f.overV6)); got != 0 {
		t.Errorf("%b came back from no peer", got)
	}
}

// othersAreNoEchoes leaves all else to the stack.
func othersAreNoEchoes(t *testing.T, f *fleet) {
	a := f.newAsking(t, 0) // as before the first round
	a.wants(t, "no nonce before the first round", a.echo(a.home, 0), 0)
	a.asks(t, 5)
	elsewhere := nodeAddr(113, f.overV6)
	a.apply(t, []plan.Op{plan.PutAddress{Addr: elsewhere, Kind: plan.NodeAddress}})
	defer a.apply(t, []plan.Op{plan.DeleteAddress{Addr: elsewhere}})
	id, good := a.peer(1), a.echo(a.home, 0)
	toPort, fromPort, toOther, short := good, good, good, good
	toPort.dst, fromPort.src = at(a.addr, carryPort+1), at(a.home, carryPort+1)
	toOther.dst, short.payload = at(elsewhere, carryPort), short.payload[:15]
	for what, p := range map[string]packet{
		"another nonce": a.echoOf(a.home, 6, id, 0), "no nonce": a.echoOf(a.home, 0, id, 0), "another peer": a.echoOf(a.home, 5, a.peer(2), 0),
		"no peer": a.echoOf(a.home, 5, 1<<30, 0), "the own ID": a.echoOf(a.home, 5, plan.HomeHere, 0), "number 64": a.echo(a.home, plan.MostEchoes),
		"from another node": a.echo(f.nodes[2].addr, 0), "from the Service": a.echo(a.service, 0), "not from the Service": a.echo(a.home, plan.EchoOfService),
		"to another port": toPort, "from another port": fromPort, "to another address": toOther, "cut short": short,
	} {
		a.wants(t, what, p, 0)
	}
}
