package packets

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// fleet is some nodes with a wire between them, and a Service that they carry packets of.
// Backends are known by their numbers, of which two run on each node.
type fleet struct {
	book
	protocol lb.Protocol
	nodes    []*fleetNode
	overV6   bool // outer headers are of IPv6
	outside  bool // backends are outside: they know no proof
	ipip     bool // and take IP in IP
	dead     *fleetNode
}

// fleetNode is one of them.
type fleetNode struct {
	*rig
	addr   netip.Addr // what outer headers go to
	number int
	silent map[int]bool // nodes that it takes for dead
	slots  []int        // backends by number, as the node has been told
	was    []plan.Owners
}

const (
	fleetSlots      = 64
	backendsOfNode  = 2
	fleetMTU        = 1500
	fleetService    = 1
	firstFleetSlot  = 16
	fleetMembersAt  = 256
	fleetBackendsAt = 8080
)

// nodeAddr is the address of a node of a fleet.
func nodeAddr(n int, of6 bool) netip.Addr {
	if of6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", n+1))
	}
	return netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", n+1))
}

// carryPort is where what is carried behind an outer header of UDP goes.
const carryPort = 6635

// carryAlike is what nodes have in common that carry alike.
const carryAlike uint64 = 0x8123456789abcdef

// firstFlowPort is the first source port of an outer header of UDP.
const firstFlowPort = 0xc000

// newFleet makes nodes that carry from one to the other, by outer headers of a family, with a changed configuration.
func newFleet(t *testing.T, nodes int, overV6 bool, change func(*datapath.Config)) *fleet {
	t.Helper()
	f := &fleet{book: v4, protocol: lb.TCP}
	for n := range nodes {
		cgroup := filepath.Join(testenv.Cgroup(t), fmt.Sprintf("fleet%d-%v", n, overV6))
		must(t, os.Mkdir(cgroup, 0o755))
		t.Cleanup(func() { must(t, os.Remove(cgroup)) })
		suffix := fmt.Sprint(n)
		if n == 0 { // its uplink is that by which all reach each other
			suffix = ""
		}
		r := newNode(t, node{cgroup, suffix, nodeAddr(n, false), nodeAddr(n, true)}, func(c *datapath.Config) {
			c.Carrying, c.Sizes.Peers, c.EjectAfter, c.MaxEjected = true, 16, 3, 50
			c.CarryPort, c.CarryKeys, c.CarryAlike = carryPort, carryKeys, carryAlike
			change(c)
		})
		must(t, r.dp.AnswerEchoes(time.Hour))
		f.nodes = append(f.nodes, &fleetNode{rig: r, number: n, silent: map[int]bool{}})
	}
	for n := range nodes {
		f.nodes[0].routeTo(t, nodeAddr(n, false), nodeAddr(n, true))
	}
	f.carryOver(t, overV6)
	return f
}

// carryOver has nodes know each other by addresses of a family, which outer headers have from now on.
func (f *fleet) carryOver(t *testing.T, v6 bool) {
	t.Helper()
	was := f.nodes[0].addr
	f.overV6 = v6
	for _, n := range f.nodes {
		n.addr = nodeAddr(n.number, v6)
	}
	for _, n := range f.nodes {
		if was.IsValid() {
			n.forgetAddresses(t, f, was.Is6())
		}
		n.introduce(t, f)
	}
}

// forgetAddresses has a node take nothing more from the addresses of a family that others have.
func (n *fleetNode) forgetAddresses(t *testing.T, f *fleet, of6 bool) {
	t.Helper()
	for _, o := range f.nodes {
		if o != n {
			n.apply(t, []plan.Op{plan.DeletePeerAddress{Addr: nodeAddr(o.number, of6)}})
		}
	}
}

// introduce tells a node of the others, and of all backends.
func (n *fleetNode) introduce(t *testing.T, f *fleet) {
	t.Helper()
	var ops []plan.Op
	for _, o := range f.nodes {
		p := n.knows(f, o.number)
		p.Usable = o != n
		ops = append(ops, plan.PutPeer{ID: n.peer(o.number), Peer: p})
		if o != n {
			ops = append(ops, plan.PutPeerAddress{Addr: o.addr, ID: n.peer(o.number)})
		}
	}
	n.apply(t, ops)
}

// knows is how a node knows another one, or itself.
func (n *fleetNode) knows(f *fleet, number int) plan.Peer {
	o := f.nodes[number]
	return plan.Peer{
		Theirs: o.addr, Ours: n.addr, Ring: plan.RingOf(fmt.Sprint("node", number)), MTU: fleetMTU, Usable: true,
	}
}

// peer is the ID that a node gives to another, or to itself: each has others.
func (n *fleetNode) peer(number int) uint32 {
	if number == n.number {
		return plan.HomeHere
	}
	return plan.FirstPeer + uint32((number+n.number)%8)
}

// id is the ID that a node gives to a backend.
func (n *fleetNode) id(backend int) uint32 { return uint32(100 + (backend*7+n.number*5)%64) }

// addrOf is the address of a backend.
func (f *fleet) addrOf(backend int) netip.AddrPort {
	home, k := backend/backendsOfNode, backend%backendsOfNode
	if f.client.Is4() {
		return at(netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", home+1, 10+k)), fleetBackendsAt)
	}
	return at(netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", home+1, 10+k)), fleetBackendsAt)
}

// serve tells all nodes of the Service, whose slots name these backends in turn.
func (f *fleet) serve(t *testing.T, backends ...int) {
	t.Helper()
	all := make([]int, backendsOfNode*len(f.nodes))
	for b := range all {
		all[b] = b
	}
	for _, n := range f.nodes {
		table, members := plan.Table{Offset: firstFleetSlot, Size: fleetSlots}, plan.Table{Offset: fleetMembersAt, Size: uint32(len(all))}
		var ops []plan.Op
		for _, b := range all {
			at := f.addrOf(b)
			ops = append(ops, plan.PutBackend{ID: n.id(b), Backend: lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: f.protocol}},
				plan.PutHome{ID: n.id(b), Home: n.peer(b / backendsOfNode)})
		}
		n.slots, n.was = slotsOf(backends), make([]plan.Owners, fleetSlots)
		n.forgetSlotChanges(t)
		view := plan.View{Table: table, Algorithm: lb.Stable}
		n.apply(t, append(ops,
			plan.PutTable{Table: table, Backends: n.ids(n.slots)}, plan.PutTable{Table: members, Backends: n.ids(all)},
			plan.PutService{ID: fleetService, Service: plan.Service{ServiceName: lb.ServiceName{Namespace: "test", Name: "web"}, Protocol: f.protocol}},
			plan.PutFrontend{Key: lb.AddrPort{Addr: f.vip, Port: 80, Protocol: f.protocol}, Value: plan.Frontend{
				Service: fleetService, Kind: lb.LoadBalancerIP, Members: members, Carried: true,
				Views: [lb.NumViews]plan.View{lb.Internal: view, lb.External: view},
			}},
			plan.PutAddress{Addr: f.vip, Kind: plan.FrontendAddress}))
		n.forget(t)
	}
}

func (n *fleetNode) ids(backends []int) []uint32 {
	ids := make([]uint32, len(backends))
	for i, b := range backends {
		ids[i] = n.id(b)
	}
	return ids
}

// slotsOf is a table by rendezvous: few slots change with a backend.
func slotsOf(backends []int) []int {
	slots := make([]int, fleetSlots)
	for i := range slots {
		slots[i] = slices.MaxFunc(backends, func(a, b int) int { return int(rankOf(i, a)) - int(rankOf(i, b)) })
	}
	return slots
}

func rankOf(slot, backend int) uint32 {
	x := (uint64(slot)<<32 | uint64(backend+1)) * 0x9e3779b97f4a7c15
	return uint32((x ^ x>>29) * 0xbf58476d1ce4e5b9 >> 33)
}

// learn tells a node which backends slots name from now on.
func (n *fleetNode) learn(t *testing.T, backends ...int) {
	t.Helper()
	op := plan.PutSlots{Table: plan.Table{Offset: firstFleetSlot, Size: fleetSlots}}
	for i, next := range slotsOf(backends) {
		if next == n.slots[i] {
			continue
		}
		n.was[i] = n.was[i].After(n.id(n.slots[i]), n.id(next))
		op.Slots = append(op.Slots, plan.SlotChange{Index: uint32(i), To: n.id(next), Was: n.was[i]})
		n.slots[i] = next
	}
	n.apply(t, []plan.Op{op})
}

// fate is what becomes of a packet in the end.
type fate struct {
	what   string // "delivered", "dropped", "reset", "passed", "lost" at a node that is dead
	node   int
	frame  []byte
	frames int // that went from node to node
}

// enter gives a frame to a node, and what that carries to the node that it is for.
func (f *fleet) enter(t *testing.T, node int, frame []byte) fate {
	t.Helper()
	for hops := 0; ; hops++ {
		verdict, made := f.nodes[node].run(t, in, uplink, frame)
		out := fate{node: node, frame: made, frames: hops}
		v, ok := parseFrame(made)
		switch {
		case verdict == drop:
			out.what = "dropped"
			return out
		case verdict == pass && f.isBackend(made, node):
			out.what = "delivered"
			return out
		case verdict == pass:
			out.what = "passed"
			return out
		case !ok || !isCarried(made):
			out.what = "reset"
			return out
		case hops > 3*len(f.nodes):
			t.Fatalf("a packet goes round and round: %s", dump(made))
		}
		next := slices.IndexFunc(f.nodes, func(n *fleetNode) bool { return n.addr == v.dst.Addr() })
		if next < 0 || next == node || v.src.Addr() != f.nodes[node].addr {
			t.Fatalf("node %d carries from %s to %s", node, v.src.Addr(), v.dst.Addr())
		}
		node, frame = next, made
		if f.nodes[node] == f.dead {
			return fate{"lost", node, made, hops + 1}
		}
	}
}

// isBackend says whether a frame is for a backend of a node.
func (f *fleet) isBackend(frame []byte, node int) bool {
	_, dst, ok := ends(frame)
	for k := range backendsOfNode {
		if ok && dst == f.addrOf(node*backendsOfNode+k) {
			return true
		}
	}
	return false
}

// outerOf returns a frame as it is carried from one node to another.
func (f *fleet) outerOf(from, to int, inner []byte, tos, tried byte) []byte {
	return f.outerBetween(f.nodes[from].addr, f.nodes[to].addr, inner, tos, tried)
}

func (f *fleet) outerBetween(src, dst netip.Addr, inner []byte, tos, tried byte) []byte {
	datagram, is4 := inner[ethernetLen:], binary.BigEndian.Uint16(inner[12:]) == 0x0800
	protocol := byte(41)
	if is4 {
		protocol = 4
	}
	if !f.ipip {
		protocol, datagram = 17, append(f.outerUDP(src, dst, inner, tried), datagram...)
	}
	var h []byte
	kind := uint16(0x0800)
	if src.Is4() {
		h = []byte{0x45, tos, 0, 0, tried << 4, 0, 0x40, 0, 64, protocol, 0, 0}
		h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(datagram)))
		binary.BigEndian.PutUint16(h[10:], sum16(h))
	} else {
		kind = 0x86dd
		h = []byte{0x60 | tos>>4, tos << 4, 0, tried, 0, 0, protocol, 64}
		h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(h[4:], uint16(len(datagram)))
	}
	out := append(slices.Clone(inner[:12]), byte(kind>>8), byte(kind))
	return append(append(out, h...), datagram...)
}

// outerUDP returns the outer header of UDP before a frame, without a checksum.
func (f *fleet) outerUDP(src, dst netip.Addr, inner []byte, ring byte) []byte {
	h := binary.BigEndian.AppendUint16(nil, firstFlowPort)
	h = binary.BigEndian.AppendUint16(h, carryPort)
	h = binary.BigEndian.AppendUint16(h, uint16(f.udpLen()+len(inner)-ethernetLen))
	h = append(h, 0, 0)
	if f.outside {
		return h
	}
	return append(h, proofOf(carryKeys[0], src, dst, inner[ethernetLen:], ring)...)
}

// udpLen is the length of that header, 0 for none.
func (f *fleet) udpLen() int {
	switch {
	case f.ipip:
		return 0
	case f.outside:
		return 8
	default:
		return 16
	}
}

// flowPort is where the source port of an outer header of UDP stands in a frame, which is one of
// the flow: what networks spread by.
func (f *fleet) flowPort(frame []byte) []byte { return frame[ethernetLen+f.outerLen()-f.udpLen():][:2] }

// isCarriedAs says whether a frame is as one is carried, whatever the port of its flow.
func (f *fleet) isCarriedAs(got, want []byte) bool {
	if len(got) < len(want) {
		return false
	}
	got = slices.Clone(got)
	if !f.ipip && binary.BigEndian.Uint16(f.flowPort(got)) >= firstFlowPort {
		copy(f.flowPort(got), f.flowPort(want))
	}
	return slices.Equal(got[12:], want[12:])
}
