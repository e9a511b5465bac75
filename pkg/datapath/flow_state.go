package datapath

import "time"

// FlowState is how far a flow is: of packets by what both directions know, of a socket by what
// the kernel says.
type FlowState string

// The states of a flow.
const (
	FlowHalfOpen    FlowState = "half-open"   // of TCP: its handshake is not complete
	FlowUnreplied   FlowState = "unreplied"   // of others: no answer was seen
	FlowReplied     FlowState = "replied"     // of others: an answer was seen, and no packet of the client since
	FlowEstablished FlowState = "established" // both sides have confirmed it
	FlowUnconnected FlowState = "unconnected" // a datagram socket that may send elsewhere, too
	FlowClosing     FlowState = "closing"     // one side has sent a FIN
	FlowRefused     FlowState = "refused"     // it has no backend
	FlowClosed      FlowState = "closed"      // both sides have sent a FIN, or one a RST
	FlowBroken      FlowState = "broken"      // its backend has left the Service
	FlowExpired     FlowState = "expired"     // it was silent for too long
)

// FlowStates are all of them. Those of flows that are over are the last ones.
var FlowStates = [...]FlowState{
	FlowHalfOpen, FlowUnreplied, FlowReplied, FlowEstablished, FlowUnconnected, FlowClosing, FlowRefused, FlowClosed, FlowBroken, FlowExpired,
}

// IsOver says whether a flow in a state has ended, although it stands in the table still.
func (s FlowState) IsOver() bool { return s == FlowClosed || s == FlowBroken || s == FlowExpired }

// idleEnded is how long a connection may be silent whose handshake is not complete, or that both
// sides have closed.
const idleEnded = time.Duration(headgateFlowTimeIDLE_ENDED_S) * time.Second

// state returns the state of a flow, given one of its directions. A flow by a device has that of
// the flow to the Service, whose original direction says most.
func (t *flowTable) state(w way, f *headgateFlow, now int64) FlowState {
	if !w.has(headgateFlowFlagFLOW_TO_BACKEND | headgateFlowFlagFLOW_REPLY | headgateFlowFlagFLOW_BYPASS | headgateFlowFlagFLOW_REFUSED) {
		if reply, there := t.behind(f); there {
			w, f = reply, reply.flow
		}
	}
	original, reply := w, way{}
	idle := w.idle(now)
	if other, there := t.find(f.other()); there && other.leadsTo(f) {
		if reply = other; !w.has(headgateFlowFlagFLOW_ORIGINAL) {
			original, reply = other, w
		}
		idle = min(idle, other.idle(now))
	}
	switch either := (way{seen: original.seen | reply.seen}); {
	case either.has(headgateFlowFlagFLOW_BROKEN):
		return FlowBroken
	case f.isTCP():
		return stateOfTCP(&original, &reply, idle)
	case idle > udpFlowTimeout:
		return FlowExpired
	case original.has(headgateFlowFlagFLOW_REFUSED):
		return FlowRefused
	case !original.isHalfOpen():
		return FlowEstablished
	case reply.has(headgateFlowFlagFLOW_SEEN):
		return FlowReplied
	default:
		return FlowUnreplied
	}
}

// stateOfTCP is the state of a connection. Programs note no RST as such. They take a connection that
// a side has reset out of what is in flight, and until a packet of the client proves that this was
// forged, it counts as closed. Of a connection that is carried to a backend outside one side is seen.
func stateOfTCP(original, reply *way, idle time.Duration) FlowState {
	const closing = headgateFlowFlagFLOW_CLOSING
	halfOpen, ends := original.isHalfOpen(), original.has(closing) || reply.has(closing)
	reset := original.has(headgateFlowFlagFLOW_TO_BACKEND) && original.flow.Known != 0 && !original.has(headgateFlowFlagFLOW_COUNTED)
	switch {
	case ends && !original.isKept() && (halfOpen || reset || original.has(closing) && reply.has(closing)):
		return FlowClosed
	case halfOpen && idle > idleEnded, idle > longestIdle && (!original.isOpen() || !reply.isOpen()):
		return FlowExpired
	case ends:
		return FlowClosing
	case halfOpen:
		return FlowHalfOpen
	default:
		return FlowEstablished
	}
}

// behind returns where the replies of a flow by a device, or past the Services, stand that go
// to the same client from the same backend by a Service.
func (t *flowTable) behind(f *headgateFlow) (way, bool) {
	to := f.becomes()
	reply := headgateFlow{Protocol: f.Protocol, Hook: uint8(headgateHookHOOK_OUT)}
	reply.Src, reply.SrcPort, reply.Dst, reply.DstPort = f.Dst, f.DstPort, f.Src, f.SrcPort
	if w, there := t.find(&reply); there {
		return w, true
	}
	reply.Src, reply.SrcPort, reply.Dst, reply.DstPort = to.Src, to.SrcPort, to.Dst, to.DstPort
	return t.find(&reply)
}
