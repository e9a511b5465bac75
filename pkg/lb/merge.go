package lb

import (
	"cmp"
	"net/netip"
	"slices"
)

// candidate is an endpoint at the port that it serves a Service port on: it
// becomes a backend where the selection allows.
type candidate struct {
	backend  AddrPort
	endpoint *Endpoint
	weight   uint32 // 0: takes no new connections
}

// gather returns the union of a Service's slices for one Service port, and one
// family, that of addr. Slice ports match by name and protocol, so one Service
// port may stand for different port numbers in different slices (named target
// ports). The result is sorted by backend, and the same in whatever order slices
// and endpoints come.
func gather(from []*Slice, port ServicePort, addr netip.Addr) []candidate {
	all := make([]candidate, 0, mergeSize(from, port, addr))
	for _, s := range from {
		for _, p := range s.Ports {
			if p.serves(port) {
				all = appendFamily(all, s.Endpoints, p, addr)
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		// Of duplicates the preferred one goes first: it is what stays.
		if c := a.backend.Compare(b.backend); c != 0 {
			return c
		}
		return preferred(a.endpoint, b.endpoint)
	})
	return all
}

// withoutDuplicates returns the first of candidates that are the same backend.
func withoutDuplicates(all []candidate) []candidate {
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.backend == b.backend })
}

// merge returns the union without duplicates.
func merge(from []*Slice, port ServicePort, addr netip.Addr) []candidate {
	return withoutDuplicates(gather(from, port, addr))
}

// mergeSize guesses how many candidates gather finds, duplicates included: right
// where every slice is of one family, as Kubernetes has it.
func mergeSize(from []*Slice, port ServicePort, addr netip.Addr) (n int) {
	for _, s := range from {
		for _, p := range s.Ports {
			if p.serves(port) && len(s.Endpoints) > 0 && sameFamily(s.Endpoints[0].Addr, addr) {
				n += len(s.Endpoints)
			}
		}
	}
	return n
}

// serves says whether the slice port stands behind the Service port.
func (p SlicePort) serves(port ServicePort) bool {
	return p.Name == port.Name && p.Protocol == port.Protocol
}

// appendFamily appends those endpoints that have the family of addr.
func appendFamily(to []candidate, endpoints []Endpoint, p SlicePort, addr netip.Addr) []candidate {
	for i := range endpoints {
		e := &endpoints[i]
		if sameFamily(e.Addr, addr) {
			to = append(to, candidate{backend: AddrPort{e.Addr, p.Port, p.Protocol}, endpoint: e})
		}
	}
	return to
}

// sameFamily says whether both are IPv4 addresses or both are IPv6 ones.
func sameFamily(a, b netip.Addr) bool { return a.BitLen() == b.BitLen() }

// preferred orders endpoints that claim the same backend, the one to believe
// first: a non-terminating one, as in kube-proxy. What Kubernetes leaves open
// is decided too, so that the order of the slices never shows.
func preferred(a, b *Endpoint) int {
	return cmp.Or(
		falseFirst(a.Terminating, b.Terminating),
		falseFirst(b.Ready, a.Ready),
		falseFirst(b.Serving, a.Serving),
		falseFirst(a.Drained, b.Drained),
		cmp.Compare(b.Weight, a.Weight),
		preferredTopology(a.Where.Topology(), b.Where.Topology()),
	)
}

// preferredTopology does the same for what endpoints differ in last.
func preferredTopology(a, b Topology) int {
	return cmp.Or(
		cmp.Compare(b.Node, a.Node), // a known node before an unknown one
		cmp.Compare(b.Zone, a.Zone),
		cmp.Compare(a.NodeHints, b.NodeHints),
		cmp.Compare(a.ZoneHints, b.ZoneHints),
	)
}

// falseFirst orders false before true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
