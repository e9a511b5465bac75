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
	answer := f.answerFrom(f.nodes[1].addr)
	for _, peer := range []netip.Addr{nodeAddr(100, f.overV6), f.nodes[0].addr} {
		sent, err := f.nodes[0].dp.Ask(plan.Echo{Peer: peer, From: answer.src, To: answer.dst, Payload: answer.payload})
		if sent || err != nil {
			t.Errorf("%s: sent %v, %v", peer, sent, err)
		}
	}
}
