// Package plan turns what should be true (frontends and their backends, of
// package lb) into the exact content of the BPF maps, and the difference of two
// states into an ordered list of operations of which every prefix is safe: no
// frontend ever names a table, and no table a backend, that is not there.
//
// It is pure and deterministic, standard library only.
package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/headgate/headgate/pkg/lb"
)

// Table is a run of the slots map: slots[Offset : Offset+Size], each slot a
// backend ID. The zero Table is empty. A dense one takes no slots: its backends have
// consecutive IDs, and its offset is DenseSlot plus the first of them.
type Table struct {
	Offset uint32
	Size   uint32 // in slots
}

// DenseSlot is the bit of a slot that is in no map, and names the ID beside it. Slots
// with it would take 8 GiB before.
const DenseSlot = 1 << 31

// Compare orders tables by where they begin.
func (t Table) Compare(o Table) int {
	return cmp.Or(cmp.Compare(t.Offset, o.Offset), cmp.Compare(t.Size, o.Size))
}

// Dense says whether the table takes no slots.
func (t Table) Dense() bool { return t.Offset&DenseSlot != 0 }

// IDs returns the backend IDs that a dense table names.
func (t Table) IDs() []uint32 {
	ids := make([]uint32, t.Size)
	for i := range ids {
		ids[i] = t.Offset&^DenseSlot + uint32(i)
	}
	return ids
}

// key is what a dense table is found by: no run has such a one.
func (t Table) key() string {
	b := binary.LittleEndian.AppendUint32(nil, t.Offset)
	return string(append(binary.LittleEndian.AppendUint32(b, t.Size), 'i'))
}

// String returns "offset+size", "id" and the first ID in place of the offset of a dense
// table, or "-" for an empty one.
func (t Table) String() string {
	switch {
	case t.Size == 0:
		return "-"
	case t.Dense():
		return fmt.Sprintf("id%d+%d", t.Offset&^DenseSlot, t.Size)
	default:
		return fmt.Sprintf("%d+%d", t.Offset, t.Size)
	}
}

// View is a class of clients' way from a frontend to backends.
type View struct {
	Table   Table
	NoLocal bool // the table is empty only because the traffic policy is Local
	// Algorithm says how to choose from the table; the zero value is lb.Random,
	// which never stands here.
	Algorithm lb.Algorithm
	Weighted  bool // weights follow the slots, for the algorithm to compare by
	FallsBack bool // where all its backends are ejected, the fallbacks stand in
	Why       lb.Why
}

// Frontend is what stands behind an address: an element of the frontends map.
type Frontend struct {
	Service uint32 // ID of the Service port, key of the services map
	Kind    lb.FrontendKind
	Views   [lb.NumViews]View // NoLocal, FallsBack and Why are those of clients' views only
	Members Table             // every backend that the Service still has, see lb.Frontend
	// Filtered says that only clients in the source ranges of the Service
	// port may use it.
	Filtered bool
	// Carried says that packets go on to the home of their backend unchanged, within
	// others, so that all nodes must choose alike.
	Carried bool
	// Former says that no new client finds the frontend: the Service has given it up. It has
	// members, and no view has backends.
	Former      bool
	lb.Steering // that leaves nothing open
}

// The tables of a frontend are those of its views, in order, and that of its members.
const (
	membersTable = lb.NumViews + iota
	numTables
)

// Tables returns every table that the frontend names, empty ones too.
func (f Frontend) Tables() [numTables]Table {
	tables := [numTables]Table{membersTable: f.Members}
	for i, v := range f.Views {
		tables[i] = v.Table
	}
	return tables
}

// Algorithm says how clients get a backend. The views of a frontend differ by table, and not by
// algorithm but where clients elsewhere are carried and have session affinity.
func (f Frontend) Algorithm() lb.Algorithm {
	return cmp.Or(f.Views[lb.Internal].Algorithm, f.Views[lb.External].Algorithm, lb.Random)
}

// Service is the value of the services map: the name of a Service port.
type Service struct {
	lb.ServiceName
	Port     string // name of the port, "" where it has none
	Protocol lb.Protocol
}

// String returns "namespace/name:port/TCP", without the colon where the port
// has no name.
func (s Service) String() string {
	if s.Port == "" {
		return s.ServiceName.String() + "/" + s.Protocol.String()
	}
	return s.ServiceName.String() + ":" + s.Port + "/" + s.Protocol.String()
}

// Refuses says whether the frontend has no backend for any client, on whatever node.
func (f Frontend) Refuses() bool {
	for _, v := range f.Views {
		if v.Table.Size > 0 || v.NoLocal {
			return false
		}
	}
	return true
}

// AddressKind says what the datapath knows of an address, port aside.
type AddressKind uint8

// The kinds of addresses, bits of a set.
const (
	// NodeAddress is an address of this node: NodePorts answer on it.
	NodeAddress AddressKind = 1 << iota
	// LoopbackAddress is 127.0.0.1 or ::1: NodePorts answer on it to
	// clients in the node's own network namespace.
	LoopbackAddress
	// ServiceAddress is a ClusterIP: ports that no Service serves are
	// refused.
	ServiceAddress
	// FrontendAddress is any other address of a frontend.
	FrontendAddress
	// OwnAddress is an address of this node on which NodePorts do not answer.
	OwnAddress
)

// Content is what the maps hold, apart from what the datapath itself writes.
// IDs start at 1; 0 is never a backend or a Service.
type Content struct {
	Frontends map[lb.AddrPort]Frontend
	Tables    map[Table][]uint32 // backend IDs, slot by slot
	Weights   map[Table][]uint32 // of the slots, of tables that have some
	Backends  map[uint32]lb.AddrPort
	Services  map[uint32]Service
	Addresses map[netip.Addr]AddressKind
	// SourceRanges are the clients of filtered frontends, by Service ID.
	SourceRanges map[SourceRange]bool
	// ServiceCIDRs are the prefixes of which every address is a Service's.
	ServiceCIDRs []netip.Prefix

	Homes         map[uint32]uint32 // by backend ID, but for HomeUnknown
	Peers         map[uint32]Peer
	PeerAddresses map[netip.Addr]uint32 // to the ID of the peer
	Owners        map[uint32]Owners     // by slot, of those that were changed
}

// IsFrontend says whether a destination means a frontend: by itself, or by its port as a
// NodePort on an address of the node. Loopback is the node only to clients of the node's own
// network namespace. A former frontend is none.
func (c Content) IsFrontend(to lb.AddrPort, ofNode bool) bool {
	if f, ok := c.Frontends[to]; ok && !f.Former {
		return true
	}
	kinds := NodeAddress
	if ofNode {
		kinds |= LoopbackAddress
	}
	if c.Addresses[to.Addr]&kinds == 0 {
		return false
	}
	unspecified := netip.IPv6Unspecified()
	if to.Addr.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	f, ok := c.Frontends[lb.AddrPort{Addr: unspecified, Port: to.Port, Protocol: to.Protocol}]
	return ok && !f.Former
}

// SourceRange is a prefix of clients that may use the filtered frontends of a
// Service port.
type SourceRange struct {
	Service uint32 // ID
	Prefix  netip.Prefix
}

// String returns "service 1 10.0.0.0/8".
func (r SourceRange) String() string { return fmt.Sprintf("service %d %s", r.Service, r.Prefix) }

// Sizes counts entries, map by map: what is needed, or what there is room for.
type Sizes struct {
	Frontends uint32
	Slots     uint32
	Backends  uint32 // with the unused ID 0, like Services
	Services  uint32
	Addresses uint32
	Peers     uint32 // with the unused HomeUnknown, and HomeHere
}

// Fit says whether there is room for all.
func (s Sizes) Fit(room Sizes) bool {
	return s.Frontends <= room.Frontends && s.Slots <= room.Slots && s.Backends <= room.Backends &&
		s.Services <= room.Services && s.Addresses <= room.Addresses && s.Peers <= room.Peers
}

// Merge returns for each map what a function makes of two numbers of its entries.
func (s Sizes) Merge(o Sizes, each func(a, b uint32) uint32) Sizes {
	return Sizes{
		Frontends: each(s.Frontends, o.Frontends),
		Slots:     each(s.Slots, o.Slots),
		Backends:  each(s.Backends, o.Backends),
		Services:  each(s.Services, o.Services),
		Addresses: each(s.Addresses, o.Addresses),
		Peers:     each(s.Peers, o.Peers),
	}
}

// AtLeast returns the larger of two numbers for each map.
func (s Sizes) AtLeast(o Sizes) Sizes {
	return s.Merge(o, func(a, b uint32) uint32 { return max(a, b) })
}

// Device is a network device on which others reach the node, or a pod does.
// Packets to Services that come in there are balanced.
type Device struct {
	Index uint32 // 0 is the node itself, with the addresses that it mostly leaves with
	Name  string
	// IP4 and IP6 are the addresses that flows to other nodes leave with, the
	// zero Addr where the node has none of the family.
	IP4, IP6 netip.Addr
	Pod      bool // the node's end of a pod's device
	// Exempt is the cookie of a network namespace whose sockets are left alone
	// as long as their packets are balanced here, 0 for none.
	Exempt uint64
	L3     bool // packets have no Ethernet header
	Trunk  bool // VLAN devices on it have programs, too, which see its tagged packets
	Shared bool // it leads to backends on this node, too, which have no device that is chosen
	// XDP says that the driver is to repeat what was done to packets before. Where that is
	// asked for and cannot be, NoXDP says why.
	XDP   bool
	NoXDP string
	Veth  bool // and that wakes nobody for what goes back by the device
}
