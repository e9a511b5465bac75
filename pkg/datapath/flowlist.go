package datapath

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Flow is an entry of conntrack, one direction of a flow: what packets with a tuple
// become at a hook.
type Flow struct {
	Hook             string // "in" or "out"
	Protocol         lb.Protocol
	From, To         netip.AddrPort
	NowFrom, NowTo   netip.AddrPort // what they become
	State            FlowState
	Idle             time.Duration // up to a second more than it is
	Service, Backend uint32        // IDs, 0 where none is known
}

// FlowState is the class of a flow.
type FlowState string

// The states of a direction of a flow.
const (
	FlowHalfOpen    FlowState = "half-open"   // not confirmed yet, or closed by both: makes room for others
	FlowEstablished FlowState = "established" // confirmed, or the reply direction of one that may be half-open
	FlowClosing     FlowState = "closing"     // FIN or RST came in this direction
	FlowRefused     FlowState = "refused"     // nobody takes it
	FlowBroken      FlowState = "broken"      // its backend has left the Service
)

func flowState(flags headgateFlowFlag) FlowState {
	switch {
	case flags&headgateFlowFlagFLOW_BROKEN != 0:
		return FlowBroken
	case flags&headgateFlowFlagFLOW_REFUSED != 0:
		return FlowRefused
	case flags&headgateFlowFlagFLOW_HALF_OPEN != 0:
		return FlowHalfOpen
	case flags&headgateFlowFlagFLOW_CLOSING != 0:
		return FlowClosing
	}
	return FlowEstablished
}

// Flows calls do with both directions of every flow, in no order, until it returns an error.
// Flows that come or go meanwhile may be missed.
func (r *Reader) Flows(do func(Flow) error) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	return walk(r.maps.byName["conntrack"], func(key *headgateTuple, value *headgateFlow) error {
		return do(decodeFlow(*key, *value, now))
	})
}

// FlowRoom is how many entries conntrack has room for.
func (r *Reader) FlowRoom() uint32 { return r.maps.byName["conntrack"].MaxEntries() }

// HalfOpenRoom is how many flows may be half-open at a time.
func (r *Reader) HalfOpenRoom() uint32 { return r.maps.byName["half_open_flows"].MaxEntries() }

func decodeFlow(k headgateTuple, f headgateFlow, now uint64) Flow {
	out := Flow{
		Hook: "in", Protocol: lb.Protocol(k.Protocol),
		State: flowState(f.Flags), Idle: max(0, time.Duration(now-f.LastSeenNs)),
		Service: f.Service, Backend: f.BackendId,
	}
	if headgateHook(k.Hook) == headgateHookHOOK_OUT {
		out.Hook = "out"
	}
	out.From, out.To = tupleEnds(k)
	out.NowFrom, out.NowTo = tupleEnds(f.To)
	return out
}

func tupleEnds(t headgateTuple) (src, dst netip.AddrPort) {
	return netip.AddrPortFrom(decodeAddr(t.Src), swapPort(t.SrcPort)), netip.AddrPortFrom(decodeAddr(t.Dst), swapPort(t.DstPort))
}

// monotonic is the clock that programs stamp flows with, in nanoseconds.
func monotonic() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(t.Nano()), nil
}
