package datapath

import (
	"fmt"
	"io"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Socket is a socket that goes to a backend of a frontend. One that sends to several frontends
// comes once for each.
type Socket struct {
	Call           string // by which it got the backend: callConnect or callSendmsg
	Protocol       lb.Protocol
	From           netip.AddrPort // its own address
	Asked, Backend netip.AddrPort // the frontend, the backend
	State          FlowState
	Service        uint32 // ID, 0 where none is known
	Cookie         uint64 // as ss -e shows it
	Netns          uint64 // cookie of its network namespace
}

// showers are the programs that show sockets.
var showers = []string{"show_tcp", "show_udp"}

// SocketList lists sockets. Its programs, and where network namespaces were found, stay from one time to the
// next, for as long as the maps are the same. The zero value is ready, and is to be closed.
type SocketList struct {
	through iterators
	of      [len(socketMaps)]ebpf.MapID // the maps that the programs read
	places  places
}

// Each calls do with every socket that goes to a backend, in no order, until it returns an error.
// It looks into the network namespaces in which there are some, on a thread that is there; those
// that come or go meanwhile may be missed.
func (l *SocketList) Each(r *Reader, do func(Socket) error) error {
	namespaces, all, err := r.socketNamespaces()
	if err != nil || len(namespaces) == 0 && !all {
		return err
	}
	owners, err := r.flowOwners()
	if err != nil {
		return err
	}
	if err := l.load(r); err != nil {
		return fmt.Errorf("list sockets: %w", err)
	}
	return l.places.visit(namespaces, all, func() error {
		return runIterators(l.through, func(from io.Reader) error {
			var s tracerShownSocket
			return eachRecord(from, bytesOf(&s), func() error {
				one, asked := decodeSocket(&s), s.Entry.Frontend
				one.Service = owners.serviceAt(asked.Protocol, headgateIpAddr(asked.Addr), asked.Port)
				return do(one)
			})
		})
	})
}

// Close lets go of the programs.
func (l *SocketList) Close() {
	l.through.Close()
	l.through = nil
}

// load has the programs read the maps of a reader.
func (l *SocketList) load(r *Reader) error {
	of, err := r.socketMaps()
	if err != nil || l.through != nil && of == l.of {
		return err
	}
	l.Close()
	c, err := r.tracerPrograms(showers)
	if err != nil {
		return err
	}
	defer c.Close()
	l.of = of
	l.through, err = attachIterators(c.Programs, func(string) *ebpf.Map { return nil })
	return err
}

// socketMaps returns the maps that hold the entries of sockets, by the kernel's numbers.
func (r *Reader) socketMaps() (ids [len(socketMaps)]ebpf.MapID, err error) {
	for i, name := range socketMaps {
		info, err := r.maps.byName[name].Info()
		if err != nil {
			return ids, fmt.Errorf("ask the kernel about map %s: %w", name, err)
		}
		ids[i], _ = info.ID()
	}
	return ids, nil
}

// socketNamespaces returns the cookies of the network namespaces with sockets that have an entry,
// or that any may have some.
func (r *Reader) socketNamespaces() (namespaces map[uint64]bool, all bool, err error) {
	slots, err := newMapping[headgateSocketSlot](r.maps.byName["socket_nat"], false)
	if err != nil {
		return nil, false, err
	}
	defer slots.Close()
	stored, _, err := mapArray(r.maps.byName[storedSockets], false)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = unix.Munmap(stored) }() // fails only for memory that is not mapped
	all = isAnySet(stored)
	return namespacesOfSlots(slots, func(*headgateSocketSlot) bool { return true }), all, nil
}

// namespacesOfSlots returns the cookies of the network namespaces whose sockets have slots of a kind.
func namespacesOfSlots(slots *mapping[headgateSocketSlot], is func(*headgateSocketSlot) bool) map[uint64]bool {
	namespaces := map[uint64]bool{}
	for i := range slots.len {
		if s := slots.at(i); s.Owner != 0 && is(s) {
			namespaces[s.Entry.Netns] = true
		}
	}
	return namespaces
}

func decodeSocket(s *tracerShownSocket) Socket {
	// One type of C, which is written for each object.
	entry := (*headgateSocketEntry)(unsafe.Pointer(&s.Entry))
	end := func(at headgateAddrPort) netip.AddrPort {
		return netip.AddrPortFrom(decodeAddr(at.Addr), swapPort(at.Port))
	}
	out := Socket{
		Call: callSendmsg, Protocol: lb.Protocol(s.From.Protocol), From: end(*(*headgateAddrPort)(unsafe.Pointer(&s.From))),
		Asked: end(entry.Frontend), Backend: end(entry.Backend), Cookie: s.Cookie, Netns: entry.Netns,
	}
	if entry.Backend.Pad&uint8(headgateEntryFlagENTRY_CONNECTED) != 0 {
		out.Call = callConnect
	}
	out.State = socketState(out.Protocol, s.State)
	return out
}

// socketState says in words of flows what the kernel calls a state of TCP, of every socket.
func socketState(protocol lb.Protocol, state uint32) FlowState {
	switch {
	case state == unix.BPF_TCP_ESTABLISHED:
		return FlowEstablished
	case protocol == lb.UDP:
		return FlowUnconnected
	case state == unix.BPF_TCP_SYN_SENT, state == unix.BPF_TCP_SYN_RECV:
		return FlowHalfOpen
	case state == unix.BPF_TCP_FIN_WAIT1, state == unix.BPF_TCP_FIN_WAIT2, state == unix.BPF_TCP_CLOSE_WAIT:
		return FlowClosing
	default: // both sides have, or nothing is left of it
		return FlowClosed
	}
}
