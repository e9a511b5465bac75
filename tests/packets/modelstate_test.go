package packets

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// modelFlow is what packets with a key become.
type modelFlow struct {
	src, dst  netip.AddrPort
	toBackend bool // from the client
	reply     bool // to the client of such a flow
	bypass    bool // past the Services
	refused   bool // sent to where nobody listens
	original  bool // the direction of the first packet
	backend   uint32
	begun     time.Time // by the clock of the test
	idle      bool      // so long that datagrams begin anew
	seen      bool      // a packet came after it was made
	closing   bool      // a packet said that it is the last
	halfOpen  bool      // not confirmed yet, or closed
	broken    bool      // the backend has left the Service
	known     uint32    // of TCP: the number after the SYN, and when it is confirmed where both sides' began
}

// missingDirection is a direction of a flow that the datapath may make again, once a
// second at most: whether it did is not for the model to say.
type missingDirection struct {
	key  key
	flow *modelFlow
}

// doing is what a flow has to say about a packet.
type doing int

const (
	beginsAnew doing = iota // or there is none
	flows
	isBroken
)

// onlyFollows says whether a packet goes where another went, whatever has become of the flow.
func onlyFollows(v view) bool { return v.later || v.protocol == lb.SCTP && v.more }

// mayBegin says whether a packet can be the first of a connection.
func mayBegin(frame []byte, v view) bool {
	switch {
	case onlyFollows(v):
		return false
	case v.protocol == lb.SCTP:
		return binary.BigEndian.Uint32(frame[v.l4+4:]) == 0
	case v.protocol == lb.TCP:
		return frame[v.l4+13]&(flagSYN|flagACK) == flagSYN
	}
	return true
}

// find returns the flow of a packet, and whether that still holds for it. What does not
// is deleted, though its reply direction stays.
func (m *model) find(frame []byte, v view) (*modelFlow, doing) {
	f, does := m.holds(frame, v)
	if does == beginsAnew {
		delete(m.flows, v.key)
	}
	return f, does
}

func (m *model) holds(frame []byte, v view) (*modelFlow, doing) {
	f, begins := m.flows[v.key], mayBegin(frame, v)
	switch {
	case f == nil || f.refused && begins:
		return nil, beginsAnew
	case f.broken && !begins:
		return f, isBroken
	case begins && f.bypass && !f.original && v.hook == in && (v.protocol == lb.TCP || f.idle && !m.isAnswered(v.key, f)):
		if other := m.flows[f.otherKey(v.key)]; other != nil && other.src == v.dst && other.dst == v.src {
			delete(m.flows, f.otherKey(v.key))
		}
		return nil, beginsAnew
	case !f.toBackend || onlyFollows(v):
		return f, flows
	case begins && v.protocol != lb.TCP && f.idle && !m.isAnswered(v.key, f) || v.protocol == lb.TCP && begins && m.isOver(v, f):
		return nil, beginsAnew
	case !f.broken && m.hasBackend(v.key, f):
		return f, flows
	case begins:
		return nil, beginsAnew
	}
	f.broken = true
	if other := m.flows[f.otherKey(v.key)]; other != nil {
		other.broken = true
	}
	m.counts["flow_broken"]++
	return f, isBroken
}

// isAnswered says whether the reply direction of a flow of datagrams is in use.
func (m *model) isAnswered(k key, f *modelFlow) bool {
	reply := m.flows[f.otherKey(k)]
	return reply != nil && reply.seen && !reply.idle && reply.src == k.dst && reply.dst == k.src
}

// replying is the ID of the backend whose replies a flow has: that which its Service has for the
// address now, and not the one with which the flow began.
func (m *model) replying(v view, f *modelFlow) uint32 {
	frontend := m.asked(key{dst: f.src, protocol: v.protocol})
	if frontend != nil {
		for _, id := range m.table(frontend.Members) {
			if b := m.told.Backends[id]; at(b.Addr, b.Port) == v.src {
				return id
			}
		}
	}
	return f.backend
}

// isOver says whether a connection is over: both sides have closed it, or one has, and a client
// that begins would not get its backend.
func (m *model) isOver(v view, f *modelFlow) bool {
	other := m.flows[f.otherKey(v.key)]
	switch {
	case !f.halfOpen:
		return false
	case other == nil || f.closing && other.closing:
		return f.closing
	default:
		return (f.closing || other.closing) && !m.takesNew(v, f)
	}
}

// takesNew says whether a client that begins just now would be given the backend of a flow.
func (m *model) takesNew(v view, f *modelFlow) bool {
	frontend := m.asked(v.key)
	return frontend != nil && slices.Contains(m.table(frontend.Views[lb.External].Table), f.backend)
}

// hasBackend says whether the Service that a client has named still has the backend: its ID may
// have become another one's.
func (m *model) hasBackend(k key, f *modelFlow) bool {
	frontend := m.asked(k)
	b := m.told.Backends[f.backend]
	return frontend != nil && at(b.Addr, b.Port) == f.dst && slices.Contains(m.table(frontend.Members), f.backend)
}

// note takes note of a packet of a flow. One that only follows another says nothing.
func (m *model) note(frame []byte, v view, f *modelFlow) {
	if onlyFollows(v) {
		return
	}
	f.idle, f.seen = false, true
	var flags byte
	if v.protocol == lb.TCP {
		flags = frame[v.l4+13]
	}
	switch {
	case flags&(flagFIN|flagRST) != 0:
		f.closing = true
	case flags&flagSYN != 0:
		f.closing = false
		if f.halfOpen && !f.original {
			f.known = binary.BigEndian.Uint32(frame[v.l4+4:]) + 1
		}
	}
	if v.protocol == lb.TCP && f.halfOpen && !f.original && f.known == 0 && flags&(flagSYN|flagRST) == 0 {
		f.known = binary.BigEndian.Uint32(frame[v.l4+4:]) // its SYN never came here
	}
	other := m.flows[f.otherKey(v.key)]
	if v.protocol == lb.TCP && !f.halfOpen && !f.original && f.known != 0 && flags&(flagSYN|flagFIN|flagRST|flagACK) == flagACK {
		f.goAlong(frame, v)
	}
	switch {
	case other == nil && (!f.halfOpen || !f.closing):
		m.missing = append(m.missing, missingDirection{f.otherKey(v.key), &modelFlow{
			src: v.dst, dst: v.src, toBackend: f.reply, reply: f.toBackend, bypass: f.bypass, original: !f.original,
			backend: m.replying(v, f), seen: !f.halfOpen, halfOpen: f.halfOpen, begun: m.given,
		}})
	case other == nil:
	case f.halfOpen:
		if !f.original || !other.seen || f.closing || other.closing {
			return
		}
		if v.protocol != lb.TCP {
			m.mayConfirm = append(m.mayConfirm, v.key)
		} else if seq, ack := numbers(frame, v); flags&(flagSYN|flagACK) == flagACK && ack-other.known < 1<<20 {
			other.known = other.known&^0xffff | seq>>16
			m.confirm(f, other)
		}
	case flags&flagACK != 0 && (flags&flagRST != 0 || flags&flagFIN != 0 && other.closing) && provesEnd(frame, v, f, other):
		f.halfOpen, other.halfOpen = true, true
	}
}

// numbers are the sequence number of a packet of TCP and the one that it acknowledges.
func numbers(frame []byte, v view) (seq, ack uint32) {
	return binary.BigEndian.Uint32(frame[v.l4+4:]), binary.BigEndian.Uint32(frame[v.l4+8:])
}

// goAlong notes both numbers of a packet of the reply direction that are 4 MiB on, and none that are further than 8 MiB.
func (f *modelFlow) goAlong(frame []byte, v view) {
	server, client := numbers(frame, v)
	switch {
	case !within(server, f.known>>16, 128) || !within(client, f.known, 128):
		f.known = 0
	case !within(server, f.known>>16, 64) || !within(client, f.known, 64):
		f.known = server&^0xffff | client>>16
	}
}

// within says whether a number is so near another of 64 KiB each.
func within(number, known uint32, reach uint16) bool { return uint16(number>>16-known)+reach < 2*reach }

// provesEnd says whether both numbers of a packet are at most 8 MiB from those that were noted last.
func provesEnd(frame []byte, v view, f, other *modelFlow) bool {
	client, server := numbers(frame, v)
	known := other.known
	if !f.original {
		client, server, known = server, client, f.known
	}
	if known != 0 && within(client, known, 128) && within(server, known>>16, 128) {
		return true
	}
	f.known, other.known = 0, 0 // of the original direction it is nothing
	return false
}

// confirm takes note that both sides have confirmed a flow.
func (m *model) confirm(f, other *modelFlow) {
	f.halfOpen, other.halfOpen = false, false
	m.counts["flow_established"]++
}

var otherHook = map[hook]hook{in: out, out: in}

// otherKey is the key of the other direction of a flow.
func (f *modelFlow) otherKey(k key) key { return key{otherHook[k.hook], f.dst, f.src, k.protocol} }

// hasEnded says whether a flow, given its reply direction, makes room for another that
// wants its port.
func (m *model) hasEnded(reply key) bool {
	f := m.flows[reply]
	original := m.flows[f.otherKey(reply)]
	if original == nil {
		return true
	}
	return f.idle && original.idle && (reply.protocol != lb.TCP || f.halfOpen || original.halfOpen || !f.seen)
}

// isFree says whether a reply tuple is unused, or already that of this packet.
func (m *model) isFree(reply, original key) bool {
	f := m.flows[reply]
	return f == nil || f.src == original.dst && f.dst == original.src || m.hasEnded(reply)
}

// begin takes note of both directions of a flow. It must have the first port that was
// to be tried, unless another flow has it.
func (m *model) begin(v view, src, dst netip.AddrPort, first uint16, f *modelFlow) error {
	reply := func(port uint16) key { return key{otherHook[v.hook], dst, at(src.Addr(), port), v.protocol} }
	switch {
	case m.isFree(reply(first), v.key):
		if src.Port() != first {
			return fmt.Errorf("it leaves from port %d though %d is free", src.Port(), first)
		}
	case src.Port() < snatLow || src.Port() > snatHigh:
		return fmt.Errorf("it leaves from port %d", src.Port())
	case !m.isFree(reply(src.Port()), v.key):
		return fmt.Errorf("it leaves from port %d, which another flow has", src.Port())
	}
	old := m.flows[reply(src.Port())]
	if old != nil && old.src == v.dst && old.dst == v.src {
		old.closing, old.broken, old.halfOpen = false, false, !f.seen || old.halfOpen && !old.seen
		old.backend, old.begun = f.backend, m.given
	} else {
		if old != nil {
			delete(m.flows, old.otherKey(reply(src.Port())))
		}
		m.flows[reply(src.Port())] = &modelFlow{
			src: v.dst, dst: v.src, reply: f.toBackend, bypass: f.bypass, seen: f.seen, halfOpen: !f.seen,
			backend: f.backend, begun: m.given,
		}
	}
	f.src, f.dst, f.halfOpen, f.original = src, dst, !f.seen, true
	m.flows[v.key] = f
	m.counts["flow_made"]++
	m.ends[quarterOf(v.dst)] = true
	m.ends[quarterOf(map[hook]netip.AddrPort{in: dst, out: src}[v.hook])] = true
	return nil
}

// beginCounted does so with a flow to a backend, whose first packet counts, too.
func (m *model) beginCounted(frame []byte, v view, src, dst netip.AddrPort, f *modelFlow) error {
	m.count(frame, v, f)
	return m.begin(v, src, dst, v.src.Port(), f)
}

// count counts a packet of a flow of a Service, which does where it gets the backend's address or
// the frontend's.
func (m *model) count(frame []byte, v view, f *modelFlow) {
	if f.toBackend || f.reply {
		m.carried.add(v.payload(frame))
	}
}

// bypassServices judges a packet that is for no Service.
func (m *model) bypassServices(frame []byte, v view, got result) error {
	reply := m.flows[v.reversed(out)]
	if !mayBegin(frame, v) || reply == nil || !reply.reply {
		return got.want(frame)
	}
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	if src.Addr() != v.src.Addr() || dst != v.dst {
		return fmt.Errorf("past the Services it goes as %s → %s", src, dst)
	}
	return m.begin(v, src, dst, v.src.Port(), &modelFlow{bypass: true})
}

// lost judges a packet within a connection of which nothing is known but,
// maybe, the reply direction.
func (m *model) lost(frame []byte, v view, f *plan.Frontend, got result) error {
	members := m.table(f.Members)
	for _, id := range members[:min(len(members), 32)] {
		b := m.told.Backends[id]
		reply := m.flows[key{out, at(b.Addr, b.Port), v.src, v.protocol}]
		if reply == nil || reply.src != v.dst || reply.dst != v.src {
			continue
		}
		if err := got.want(v.rewritten(frame, v.src, at(b.Addr, b.Port))); err != nil {
			return err
		}
		return m.beginCounted(frame, v, v.src, at(b.Addr, b.Port), &modelFlow{toBackend: true, seen: true, backend: id})
	}
	id, had := m.affinities[affinityKey{v.src.Addr(), f.Service}]
	if f.AffinityTimeout == 0 || !had || !slices.Contains(members, id) {
		m.counts["drop no_flow"]++
		return got.wantReset(frame, v, m)
	}
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	if b := m.told.Backends[id]; dst != at(b.Addr, b.Port) {
		return fmt.Errorf("a lost connection goes to %s, want %v", dst, b)
	}
	return m.beginCounted(frame, v, src, dst, &modelFlow{toBackend: true, backend: id})
}

// fromDevice judges a packet on its way out that has no flow yet.
func (m *model) fromDevice(frame []byte, v view, dev plan.Device, got result) error {
	of, from := m.flows[v.reversed(out)], own(dev, v)
	switch {
	case of == nil && (v.src.Addr() == from || m.answersAt(v)) && mayBegin(frame, v):
		return m.fromNode(frame, v, got)
	case of == nil || of.bypass:
		return got.want(frame)
	}
	if !mayBegin(frame, v) && !m.leftBefore(v, from) {
		m.counts["drop no_flow"]++
		return got.wantReset(frame, v, m)
	}
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	if src.Addr() != from || dst != v.dst {
		return fmt.Errorf("it leaves as %s → %s, want %s → %s", src, dst, from, v.dst)
	}
	first := v.src.Port()
	if !mayBegin(frame, v) || first < snatLow || first > snatUnshared {
		first = src.Port() // the reply direction must be there, see begin
	}
	return m.begin(v, src, dst, first, &modelFlow{backend: of.backend})
}

// fromNode judges a packet of the node itself to where flows may go.
func (m *model) fromNode(frame []byte, v view, got result) error {
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	if src.Addr() != v.src.Addr() || dst != v.dst {
		return fmt.Errorf("from the node it goes as %s → %s", src, dst)
	}
	if src == v.src && !m.mayBeOurs(v) { // whether it is looked at depends on its headers
		m.mayBegin = &v
		return nil
	}
	return m.begin(v, src, dst, v.src.Port(), &modelFlow{bypass: true})
}

// answersAt says whether a packet comes from an end of the node at which a frontend answers.
func (m *model) answersAt(v view) bool {
	to := v
	to.dst = v.src
	f, _ := m.frontend(to)
	return f != nil && m.told.Addresses[v.src.Addr()]&(plan.NodeAddress|plan.OwnAddress) != 0
}

// leftBefore says whether a reply direction leads to a client by an address.
func (m *model) leftBefore(v view, from netip.Addr) bool {
	for k, f := range m.flows {
		if k.hook == in && k.src == v.dst && k.dst.Addr() == from && k.protocol == v.protocol && f.src == v.dst && f.dst == v.src {
			return true
		}
	}
	return false
}
