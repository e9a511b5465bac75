package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

// Model is the maps in memory: what a datapath does with operations, without a
// kernel. The zero value is empty maps.
type Model struct {
	Frontends map[lb.AddrPort]Frontend
	Slots     []uint32
	Backends  map[uint32]lb.AddrPort
	Services  map[uint32]Service
	Addresses map[netip.Addr]AddressKind

	SourceRanges map[SourceRange]bool
	ServiceCIDRs []netip.Prefix

	Homes         map[uint32]uint32
	Peers         map[uint32]Peer
	PeerAddresses map[netip.Addr]uint32
	Owners        map[uint32]Owners
}

// Apply does one operation.
func (m *Model) Apply(op Op) {
	switch o := op.(type) {
	case PutBackend:
		put(&m.Backends, o.ID, o.Backend)
		delete(m.Homes, o.ID)
	case PutTable:
		r := run{slots: o.Backends, weights: o.Weights, cursor: o.Cursor}
		if end := int(o.Table.Offset + r.extent()); end > len(m.Slots) {
			m.Slots = append(m.Slots, make([]uint32, end-len(m.Slots))...)
		}
		copy(m.Slots[o.Table.Offset:], slices.Concat(o.Backends, o.Weights))
	case PutSlots:
		for _, s := range o.Slots {
			m.Slots[o.Table.Offset+s.Index] = s.To
			put(&m.Owners, o.Table.Offset+s.Index, s.Was)
		}
	case PutService:
		put(&m.Services, o.ID, o.Service)
	case PutFrontend:
		put(&m.Frontends, o.Key, o.Value)
	case PutAddress:
		put(&m.Addresses, o.Addr, o.Kind)
	case PutSourceRange:
		put(&m.SourceRanges, o.Range, true)
	case DeleteSourceRange:
		delete(m.SourceRanges, o.Range)
	case PutServiceCIDRs:
		m.ServiceCIDRs = o.Prefixes
	case DeleteFrontend:
		delete(m.Frontends, o.Key)
	case DeleteAddress:
		delete(m.Addresses, o.Addr)
	case ClearBackend:
		delete(m.Backends, o.ID)
		delete(m.Homes, o.ID)
	case ClearService:
		delete(m.Services, o.ID)
	case PutPeer:
		put(&m.Peers, o.ID, o.Peer)
	case ClearPeer:
		delete(m.Peers, o.ID)
	case PutPeerAddress:
		put(&m.PeerAddresses, o.Addr, o.ID)
	case DeletePeerAddress:
		delete(m.PeerAddresses, o.Addr)
	case PutHome:
		put(&m.Homes, o.ID, o.Home)
	case ClearFrontend, Grace:
	}
}

func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// Table returns the backend IDs that a table names, nil where it is not whole.
func (m *Model) Table(t Table) []uint32 {
	switch {
	case t.Dense():
		return t.IDs()
	case int(t.Offset+t.Size) > len(m.Slots):
		return nil
	default:
		return slices.Clone(m.Slots[t.Offset : t.Offset+t.Size])
	}
}

// Content returns what the maps hold. Tables are those that frontends name.
func (m *Model) Content() Content {
	c := Content{
		Frontends: maps.Clone(m.Frontends), Tables: map[Table][]uint32{}, Weights: map[Table][]uint32{},
		Backends: maps.Clone(m.Backends), Services: maps.Clone(m.Services), Addresses: maps.Clone(m.Addresses),
		SourceRanges: maps.Clone(m.SourceRanges), ServiceCIDRs: slices.Clone(m.ServiceCIDRs),
		Homes: maps.Clone(m.Homes), Peers: maps.Clone(m.Peers), PeerAddresses: maps.Clone(m.PeerAddresses),
		Owners: maps.Clone(m.Owners),
	}
	for _, f := range m.Frontends {
		for _, t := range f.Tables() {
			if ids := m.Table(t); len(ids) > 0 {
				c.Tables[t] = ids
			}
		}
		for _, v := range f.Views {
			if t := v.Table; v.Weighted && int(t.Offset+2*t.Size) <= len(m.Slots) {
				c.Weights[t] = slices.Clone(m.Slots[t.Offset+t.Size : t.Offset+2*t.Size])
			}
		}
	}
	return c
}

// Check returns an error if something refers to what is not there.
func (c Content) Check() error {
	for _, key := range slices.SortedFunc(maps.Keys(c.Frontends), lb.AddrPort.Compare) {
		f := c.Frontends[key]
		if _, ok := c.Services[f.Service]; !ok {
			return fmt.Errorf("frontend %s names service %d, which is not there", key, f.Service)
		}
		for _, t := range f.Tables() {
			ids, ok := c.Tables[t]
			if !ok && t.Size > 0 {
				return fmt.Errorf("frontend %s names table %s, which is not there", key, t)
			}
			for i, id := range ids {
				if _, ok := c.Backends[id]; !ok {
					return fmt.Errorf("slot %d of table %s names backend %d, which is not there", i, t, id)
				}
			}
		}
	}
	return nil
}

// String returns one line for each entry, sorted: equal content is equal text.
func (c Content) String() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(c.Frontends), lb.AddrPort.Compare) {
		fmt.Fprintf(&b, "frontend %s %s\n", k, c.Frontends[k])
	}
	for _, t := range slices.SortedFunc(maps.Keys(c.Tables), Table.Compare) {
		fmt.Fprintf(&b, "table %s backends %s\n", t, joinIDs(c.Tables[t]))
		if c.Weights[t] != nil {
			fmt.Fprintf(&b, "table %s weights %s\n", t, joinIDs(c.Weights[t]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Backends)) {
		fmt.Fprintf(&b, "backend %d %s\n", id, c.Backends[id])
	}
	for _, id := range slices.Sorted(maps.Keys(c.Services)) {
		fmt.Fprintf(&b, "service %d %s\n", id, c.Services[id])
	}
	for _, a := range slices.SortedFunc(maps.Keys(c.Addresses), netip.Addr.Compare) {
		fmt.Fprintf(&b, "address %s %s\n", a, c.Addresses[a])
	}
	for _, r := range slices.SortedFunc(maps.Keys(c.SourceRanges), SourceRange.compare) {
		fmt.Fprintf(&b, "source-range %s\n", r)
	}
	for _, p := range c.ServiceCIDRs {
		fmt.Fprintf(&b, "service-cidr %s\n", p)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		fmt.Fprintf(&b, "peer %d %s\n", id, c.Peers[id])
	}
	for _, a := range slices.SortedFunc(maps.Keys(c.PeerAddresses), netip.Addr.Compare) {
		fmt.Fprintf(&b, "peer-address %s %d\n", a, c.PeerAddresses[a])
	}
	for _, id := range slices.Sorted(maps.Keys(c.Homes)) {
		fmt.Fprintf(&b, "home %d %d\n", id, c.Homes[id])
	}
	return b.String()
}
