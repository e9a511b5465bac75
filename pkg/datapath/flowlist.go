package datapath

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Flow is one direction of a flow: what packets with a tuple become at a hook.
type Flow struct {
	Hook             string // "in" or "out"
	Protocol         lb.Protocol
	From, To         netip.AddrPort
	NowFrom, NowTo   netip.AddrPort // what they become
	State            FlowState      // of both directions
	Idle             time.Duration  // up to a second more than it is
	Service, Backend uint32         // IDs, 0 where none is known
	Original         bool           // from the client, not back to it
}

// Flows calls do with both directions of every flow, in no order, until it returns an
// error. Flows that come or go meanwhile may be missed. The table is large, and memory as a whole only
// where there are some.
func (r *Reader) Flows(do func(Flow) error) error {
	sets := newGlance[headgateFlowSet](r.maps.byName[flowTableMap])
	defer sets.Close()
	for set := range sets.len {
		if sets.at(set).Tag != [flowWays]uint32{} {
			return r.flowsFrom(set, do)
		}
	}
	return sets.failed
}

// flowsFrom does so of the flows in a set and in those behind it.
func (r *Reader) flowsFrom(first uint32, do func(Flow) error) error {
	t, err := openFlowTable(r.maps, false)
	if err != nil {
		return err
	}
	defer t.Close()
	owners, err := r.flowOwners()
	if err != nil {
		return err
	}
	for set := first; set < t.sets.len; set++ {
		for w, f := range t.flowsIn(set) {
			one := decodeFlow(w, f, t.opened)
			one.State = t.state(w, &f, t.opened)
			one.Service, one.Backend = owners.of(t, w, &f)
			if err := do(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// FlowRoom is how many directions of flows there is room for.
func (r *Reader) FlowRoom() uint32 { return r.maps.byName[flowTableMap].MaxEntries() * flowWays }

func hookName(hook uint8) string {
	if headgateHook(hook) == headgateHookHOOK_OUT {
		return "out"
	}
	return "in"
}

func decodeFlow(w way, f headgateFlow, now int64) Flow {
	out := Flow{Hook: hookName(f.Hook), Protocol: lb.Protocol(f.Protocol), Idle: w.idle(now), Original: w.has(headgateFlowFlagFLOW_ORIGINAL)}
	out.From, out.To = tupleEnds(headgateTuple{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, DstPort: f.DstPort})
	out.NowFrom, out.NowTo = tupleEnds(f.becomes())
	return out
}

// flowOwners tells whose a flow is, by its addresses, as these were when the first was asked for.
type flowOwners struct {
	services map[lb.AddrPort]uint32 // by frontend
	backends map[headgateAddrPort]uint32
}

func (r *Reader) flowOwners() (o flowOwners, err error) {
	if r.owners != nil {
		return *r.owners, nil
	}
	o = flowOwners{map[lb.AddrPort]uint32{}, map[headgateAddrPort]uint32{}}
	for id := uint32(1); id < r.backends.len; id++ {
		if to := r.backends.at(id).To; to.Port != 0 {
			o.backends[to] = id
		}
	}
	err = r.maps.eachFrontend(func(at lb.AddrPort, f plan.Frontend) error { // former ones, too
		o.services[at] = f.Service
		return nil
	})
	if err == nil {
		r.owners = &o
	}
	return o, err
}

// of returns the IDs of the Service and of the backend of a direction, 0 where it has none.
func (o flowOwners) of(t *flowTable, w way, f *headgateFlow) (service, backend uint32) {
	to := f.becomes()
	switch {
	case w.has(headgateFlowFlagFLOW_TO_BACKEND):
		service = o.serviceAt(f.Protocol, f.Dst, f.DstPort)
	case w.has(headgateFlowFlagFLOW_REPLY):
		service = o.serviceAt(f.Protocol, to.Src, to.SrcPort)
	default:
		if reply, there := t.behind(f); there {
			service = o.serviceAt(f.Protocol, reply.flow.To, reply.flow.ToSrcPort)
		}
	}
	if w.has(headgateFlowFlagFLOW_ORIGINAL) {
		return service, o.backends[headgateAddrPort{Addr: to.Dst, Port: to.DstPort, Protocol: f.Protocol}]
	}
	return service, o.backends[headgateAddrPort{Addr: f.Src, Port: f.SrcPort, Protocol: f.Protocol}]
}

// serviceAt returns the Service of the frontend at an address, which may be a NodePort.
func (o flowOwners) serviceAt(protocol uint8, addr headgateIpAddr, port uint16) uint32 {
	at := lb.AddrPort{Addr: decodeAddr(addr), Port: swapPort(port), Protocol: lb.Protocol(protocol)}
	if id, ok := o.services[at]; ok {
		return id
	}
	if at.Addr = netip.IPv6Unspecified(); decodeAddr(addr).Is4() {
		at.Addr = netip.IPv4Unspecified()
	}
	return o.services[at]
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
