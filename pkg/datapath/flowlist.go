package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Flow is one way of a flow: what packets with a tuple become at a hook.
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

// The states of a way of a flow.
const (
	FlowBrief       FlowState = "brief"       // not confirmed yet, or closed by both: makes room for others
	FlowEstablished FlowState = "established" // confirmed, or the other way of one that may be brief
	FlowClosing     FlowState = "closing"     // FIN or RST came by this way
	FlowRefused     FlowState = "refused"     // nobody takes it
	FlowBroken      FlowState = "broken"      // its backend has left the Service
)

// As of enum flow_flag in bpf/flow_types.h.
const (
	flagClosing = 1 << 1
	flagRefused = 1 << 2
	flagBrief   = 1 << 7
	flagBroken  = 1 << 8
)

func flowState(flags uint32) FlowState {
	switch {
	case flags&flagBroken != 0:
		return FlowBroken
	case flags&flagRefused != 0:
		return FlowRefused
	case flags&flagBrief != 0:
		return FlowBrief
	case flags&flagClosing != 0:
		return FlowClosing
	}
	return FlowEstablished
}

// Flows calls yield with every way of every flow, in no order, until it says no.
// Flows that come or go meanwhile may be missed.
func (i *Inspector) Flows(yield func(Flow) bool) error {
	const batch = 4096
	var cursor ebpf.MapBatchCursor
	keys, values := make([]headgateTuple, batch), make([]headgateFlow, batch)
	now, err := monotonic()
	if err != nil {
		return err
	}
	for {
		n, err := i.maps.byName["conntrack"].BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read the flows: %w", err)
		}
		for j := range n {
			if !yield(decodeFlow(keys[j], values[j], now)) {
				return nil
			}
		}
		if err != nil {
			return nil // that was the last of them
		}
	}
}

// FlowRoom is how many ways of flows there is room for.
func (i *Inspector) FlowRoom() uint32 { return i.maps.byName["conntrack"].MaxEntries() }

// BriefRoom is how many flows may be brief at a time.
func (i *Inspector) BriefRoom() uint32 { return i.maps.byName["brief_flows"].MaxEntries() }

func decodeFlow(k headgateTuple, f headgateFlow, now uint64) Flow {
	out := Flow{
		Hook: "in", Protocol: lb.Protocol(k.Protocol),
		State: flowState(uint32(f.Flags)), Idle: max(0, time.Duration(now-f.LastSeenNs)),
		Service: f.Service, Backend: f.BackendId,
	}
	if k.Hook == 2 {
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
