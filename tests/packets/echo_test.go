package packets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// answerFrom is what node 0 asks node 1 for, from an address: a question has no answer yet.
func (f *fleet) answerFrom(from netip.Addr) packet {
	payload := append(questionPayload(5, f.nodes[0].peer(1), 2), '.') // an odd number of bytes
	return packet{src: at(from, carryPort), dst: at(f.nodes[0].addr, carryPort), protocol: lb.UDP, payload: payload}
}

// questionPayload is the payload of a question.
func questionPayload(nonce uint64, peer, question uint32) []byte {
	b := binary.NativeEndian.AppendUint64(nil, nonce)
	b = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(b, peer), question)
	return append(b, make([]byte, 16)...)
}

// answered is a question with the answer of a node that carries so, by a key. It hashes the same fields as
// bpf/tc/echo.h.
func answered(question packet, alike uint64, key [2]uint64) packet {
	src, dst := question.src.Addr().As16(), question.dst.Addr().As16()
	b := question.payload
	m := slices.Concat(src[:], dst[:], b[:8], b[8:16], binary.NativeEndian.AppendUint64(nil, alike))
	question.payload = binary.NativeEndian.AppendUint64(slices.Clone(b[:16]), alike)
	question.payload = append(binary.NativeEndian.AppendUint64(question.payload, sipHash13(key, m)), b[32:]...)
	return question
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
			want := answered(answer, carryAlike, carryKeys[0]).frame(t)
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
	otherPort, fromPort, tcp, stranger, itself, short, cut := good, good, good, good, good, good, good
	otherPort.dst = at(f.nodes[0].addr, carryPort+1)
	fromPort.src = at(f.nodes[1].addr, carryPort+1)
	tcp.protocol, tcp.flags = lb.TCP, "S"
	stranger.src = at(nodeAddr(100, f.overV6), carryPort)
	itself.src = at(f.nodes[0].addr, carryPort)
	short.fragment = &fragment{size: 16}
	cut.payload = cut.payload[:31]
	for what, p := range map[string]packet{
		"to another port": otherPort, "from another port": fromPort, "TCP": tcp, "from a stranger": stranger, "from who asks": itself, "a fragment": short, "cut short": cut,
	} {
		if verdict, made := f.nodes[1].run(t, in, uplink, f.questionFor(t, p, 0)); verdict != drop {
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

// questionsAreRefused has a node answer while its agent says so.
func questionsAreRefused(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, question := f.nodes[1], f.questionFor(t, f.answerFrom(f.nodes[1].addr), 0)
	asks := func(when string, want bool) {
		t.Helper()
		refused := n.counters(t)["echo_refused"]
		verdict, _ := n.run(t, in, uplink, question)
		counted := n.counters(t)["echo_refused"] - refused
		if (verdict == redirect) != want || !want && (verdict != drop || counted != 1) {
			t.Errorf("%s: verdict %d, counted %d times", when, verdict, counted)
		}
	}
	asks("at first", true)
	must(t, n.dp.AnswerEchoes(0))
	asks("without an answer of its agent", false)
	must(t, n.dp.AnswerEchoes(time.Second))
	asks("for a while", true)
	time.Sleep(1100 * time.Millisecond)
	asks("after that", false)
	must(t, n.dp.AnswerEchoes(time.Hour))
	asks("again", true)
}

// questionsAreLimited has a node get more questions of a peer than it answers at a time, and one of another peer.
func questionsAreLimited(t *testing.T, f *fleet) {
	const most, more = 256, 5
	f.serve(t, 2)
	n, question := f.nodes[1], f.questionFor(t, f.answerFrom(f.nodes[1].addr), 0)
	other := f.answerFrom(f.nodes[1].addr)
	other.dst = at(f.nodes[2].addr, carryPort)
	must(t, <-onCPUs(t, func() error {
		for range 20 {
			began := echoTime(t)
			for echoTime(t) == began {
			} // with a whole budget
			began = echoTime(t)
			limited, sent := n.counters(t)["echo_refused"], 0
			for range most + more {
				if verdict, _ := n.run(t, in, uplink, question); verdict == redirect {
					sent++
				}
			}
			counted := n.counters(t)["echo_refused"] - limited
			verdict, _ := n.run(t, in, uplink, f.outerOf(2, 1, other.frame(t), 0, 0))
			if echoTime(t) != began {
				continue // it took too long
			}
			if sent != most || counted != more {
				return fmt.Errorf("%d of %d questions come back, %d are counted as refused; want %d and %d", sent, most+more, counted, most, more)
			}
			if verdict != redirect {
				return fmt.Errorf("verdict %d for a question of another peer", verdict)
			}
			return nil
		}
		return errors.New("each try took longer than a unit of time")
	}))
}

// echoTime is the unit of time that budgets of echoes are for.
func echoTime(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return now.Nano() >> 30
}

// whoIsNoPeerIsNotAsked has questions go nowhere.
func whoIsNoPeerIsNotAsked(t *testing.T, f *fleet) {
	for _, peer := range []netip.Addr{nodeAddr(100, f.overV6), f.nodes[0].addr} {
		known, err := f.nodes[0].dp.Ask(plan.Echo{Peer: peer, Ours: f.nodes[0].addr, Nonce: 1})
		if known || err != nil {
			t.Errorf("%s: known %v, %v", peer, known, err)
		}
	}
}

// echoOf is the echo of a question of node 0 to node 1, from an address.
func (f *fleet) echoOf(from netip.Addr, nonce uint64, peer, question uint32) packet {
	p := f.answerFrom(from)
	p.payload = questionPayload(nonce, peer, question)
	return answered(p, carryAlike, carryKeys[0])
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
	a.round = plan.Echo{Peer: a.home, Ours: a.addr, Nonce: nonce, Service: a.service, Question: plan.EchoOfService}
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
	if got := a.dp.TakeEchoes(a.home, a.addr); got != (plan.Echoes{Questions: bits}) {
		t.Errorf("%s: %+v came back, want %+v", what, got, bits)
	}
}

// echoesAreTaken has the node that asked take echoes before its stack does.
func echoesAreTaken(t *testing.T, f *fleet) {
	a := f.newAsking(t, 1<<63|5)
	for _, question := range []uint32{0, 2, 62} {
		a.wants(t, "an echo", a.echo(a.home, question), 1<<question)
	}
	a.wants(t, "the echo of the Service", a.echo(a.service, plan.EchoOfService), 1<<plan.EchoOfService)
	merged := a.echo(a.home, 2) // by a card
	merged.payload = nil
	for question := range plan.MostEchoes {
		merged.payload = append(merged.payload, a.echoOf(a.home, a.round.Nonce-uint64(question%2), a.peer(1), question).payload...)
	}
	if r, err := a.trySegments(in, uplink, merged.frame(t), 32); err != nil || r.verdict != drop {
		t.Errorf("merged echoes: verdict %d, %v", r.verdict, err)
	}
	if got, want := a.dp.TakeEchoes(a.home, a.addr), (plan.Echoes{Questions: 0x5555555555555555}); got != want {
		t.Errorf("merged echoes: %+v came back, want %+v", got, want)
	}
	a.run(t, in, uplink, a.echo(a.home, 3).frame(t))
	a.asks(t, a.round.Nonce)
	a.wants(t, "another question of the round", a.echo(a.home, 0), 1|1<<3)
	a.run(t, in, uplink, a.echo(a.home, 3).frame(t))
	a.asks(t, a.round.Nonce+1)
	a.wants(t, "a round later", a.echo(a.home, 0), 1)
	a.run(t, in, uplink, a.echo(a.home, 5).frame(t))
	for _, ends := range [][2]netip.Addr{{nodeAddr(100, f.overV6), a.addr}, {a.home, nodeAddr(100, f.overV6)}} {
		if got := a.dp.TakeEchoes(ends[0], ends[1]); got != (plan.Echoes{}) {
			t.Errorf("%v: %+v came back from no peer", ends, got)
		}
	}
	byOther := answered(a.echo(a.home, 3), carryAlike, carryKeys[1])
	a.wants(t, "an echo by the second key", byOther, 1<<3|1<<5)
	unlike := answered(a.echo(a.home, 4), carryAlike^1<<63, carryKeys[0])
	a.run(t, in, uplink, unlike.frame(t))
	if got, want := a.dp.TakeEchoes(a.home, a.addr), (plan.Echoes{Questions: 1 << 4, Unlike: true}); got != want {
		t.Errorf("from a node that carries otherwise: %+v came back, want %+v", got, want)
	}
	a.run(t, in, uplink, unlike.frame(t))
	a.asks(t, a.round.Nonce+1)
	a.wants(t, "alike a round later", a.echo(a.home, 0), 1)
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
	toPort, toOther, short := good, good, good
	toPort.dst = at(a.addr, carryPort+1)
	toOther.dst, short.payload = at(elsewhere, carryPort), short.payload[:31]
	flipped := func(bit int) packet {
		p := good
		p.payload = slices.Clone(p.payload)
		p.payload[bit/8] ^= 1 << (bit % 8)
		return p
	}
	for what, p := range map[string]packet{
		"without an answer": func() packet { p := f.answerFrom(a.home); p.payload = questionPayload(5, id, 0); return p }(),
		"by no key":         answered(good, carryAlike, [2]uint64{}), "another proof": flipped(255), "another bit of the proof": flipped(192),
		"another answer": flipped(128), "the proof of another number": flipped(96),
		"the proof of the way there": func() packet {
			p := good
			p.src, p.dst = p.dst, p.src
			p = answered(p, carryAlike, carryKeys[0])
			p.src, p.dst = good.src, good.dst
			return p
		}(),
		"another nonce": a.echoOf(a.home, 6, id, 0), "no nonce": a.echoOf(a.home, 0, id, 0), "another peer": a.echoOf(a.home, 5, a.peer(2), 0),
		"no peer": a.echoOf(a.home, 5, 1<<30, 0), "the own ID": a.echoOf(a.home, 5, plan.HomeHere, 0), "number 63": a.echo(a.home, plan.MostEchoes),
		"from another node": a.echo(f.nodes[2].addr, 0), "from the Service": a.echo(a.service, 0), "not from the Service": a.echo(a.home, plan.EchoOfService),
		"to another port": toPort, "to another address": toOther, "cut short": short,
	} {
		a.wants(t, what, p, 0)
	}
}
