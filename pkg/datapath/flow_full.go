package datapath

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// NoRoom returns how many of some clients could not begin a flow to a backend now: the flow table has no room for it, as
// bpf/flow/room.h and bpf/flow/move.h have it.
func (r *Reader) NoRoom(protocol lb.Protocol, to, backend netip.AddrPort, clients ...netip.AddrPort) (n int, err error) {
	t, err := openFlowTable(r.maps, false)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	for _, client := range clients {
		f := &headgateFlow{
			Src: encodeAddr(client.Addr()), SrcPort: swapPort(client.Port()), Dst: encodeAddr(to.Addr()), DstPort: swapPort(to.Port()),
			Protocol: uint8(protocol), Hook: uint8(headgateHookHOOK_IN),
			To: encodeAddr(backend.Addr()), ToSrcPort: swapPort(client.Port()), ToDstPort: swapPort(backend.Port()),
		}
		if !t.hasRoom(f) || !t.hasRoom(f.other()) {
			n++
		}
	}
	return n, nil
}

// hasRoom says whether a direction of a flow is there, or finds room in one of its two sets, at once or after a flow has moved.
func (t *flowTable) hasRoom(f *headgateFlow) bool {
	if _, there := t.find(f); there {
		return true
	}
	first, second, _ := t.place(f)
	for _, set := range []uint32{first, second} {
		if t.makesRoom(set, f) || t.canFree(set, 2) {
			return true
		}
	}
	return false
}

// oneSided is for how long a connection is silent that one side has closed, before it makes room for TCP, as
// bpf/flow/one_sided.h has it.
const oneSided = 5 * time.Second

// makesRoom says whether a set has a free way for a flow, or one whose flow goes for it.
func (t *flowTable) makesRoom(set uint32, f *headgateFlow) bool {
	datagrams, over, overTCP := 0, false, false
	for i := range flowWays {
		w := t.at(set*flowWays + i)
		idle := w.idle(t.opened)
		switch {
		case atomic.LoadUint32(w.tag) == 0 || w.has(headgateFlowFlagFLOW_BUSY):
			return true
		case w.has(headgateFlowFlagFLOW_DATAGRAMS):
			datagrams++
			over = over || w.isHalfOpen() || idle > udpFlowTimeout
		default:
			overTCP = overTCP || w.isHalfOpen() || idle > longestIdle || f.isTCP() && w.has(headgateFlowFlagFLOW_CLOSING) && idle > oneSided
		}
	}
	const share = 4 // DATAGRAM_WAYS
	if f.isTCP() {
		return over || overTCP || datagrams > share
	}
	return over || overTCP && datagrams < share
}

// canFree says whether a flow of a full set can go to a free way of its second set, after so many moves at most: each makes room
// for the one before, and only the first may be of a flow that is in its second set.
func (t *flowTable) canFree(set uint32, moves int) bool {
	for i := range flowWays {
		f, ok := t.at(set*flowWays + i).read()
		if !ok {
			continue
		}
		first, second, _ := t.place(&f)
		if second == set {
			continue
		}
		if _, free := t.freeIn(second); free && first == set || moves > 1 && t.canFree(second, moves-1) {
			return true
		}
	}
	return false
}
