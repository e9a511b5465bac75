package probe

import (
	"net/netip"
	"slices"
)

// Guard says which addresses may be asked.
type Guard struct {
	allowed []netip.Prefix          // nil: every address but those below
	node    map[netip.Addr]bool     // addresses of this node
	nodes   map[netip.Addr]int      // addresses of nodes, and how many Nodes have them
	cidrs   []netip.Prefix          // prefixes that belong to Services
	service map[netip.Addr]struct{} // addresses of Services
}

// refuse returns why an address may not be asked, "" where it may.
func (g Guard) refuse(addr netip.Addr) string {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	_, isService := g.service[addr]
	switch {
	case addr.Is4In6(), !addr.IsGlobalUnicast(), addr.Zone() != "":
		return "it is no unicast address that other nodes can reach"
	case g.node[addr]:
		return "it is an address of this node"
	case g.nodes[addr] > 0:
		return "it is an address of another node"
	case isService, slices.ContainsFunc(g.cidrs, within):
		return "it belongs to Services"
	case g.allowed != nil && !slices.ContainsFunc(g.allowed, within):
		return "it is outside the prefixes of --probes"
	default:
		return ""
	}
}

// count notes that so many more Nodes have these addresses.
func (g Guard) count(addresses []netip.Addr, more int) {
	for _, a := range addresses {
		if g.nodes[a] += more; g.nodes[a] == 0 {
			delete(g.nodes, a)
		}
	}
}
