package lb

import (
	"math"
	"net/netip"
	"slices"
)

// Frontends returns the addresses that clients use to reach a Service, and for
// each of them the backends usable from node. from is the slices of the Service
// and of no other.
//
// Every Service port has a frontend at each ClusterIP, external IP and
// load-balancer IP and, where it has a NodePort, at the unspecified address of
// each family. The families of a Service are those of its ClusterIPs; addresses
// of another family are not served, as in kube-proxy. Endpoints stand behind
// frontends of their own family only.
//
// Clients of a ClusterIP are under the internal traffic policy, wherever they
// are. Of the other kinds, clients elsewhere are under the external traffic
// policy, and clients on this node reach every endpoint, whatever the policies
// say: for them the node is a short circuit, not an entry, as in kube-proxy.
//
// The result is sorted by address, port and protocol. An address that the
// Service has twice is there once, as the first of its kinds (ClusterIP,
// NodePort, load-balancer IP, external IP). Views of one Service port and
// family with equal backends share memory; do not modify it.
func Frontends(svc *Service, from []*Slice, node Node) []Frontend {
	return frontendsOf(svc, partsOf(svc, from, node, Drained{}, math.MaxInt))
}

// frontendsOf returns the frontends of a Service by what was found for its ports.
func frontendsOf(svc *Service, parts []part) []Frontend {
	var all []Frontend
	for _, p := range parts {
		all = appendFrontends(all, svc, p.port, p.clusterIP, p.selection)
	}
	// Stable: of an address that is there twice, the first one found stays.
	slices.SortStableFunc(all, func(a, b Frontend) int { return a.Compare(b.AddrPort) })
	return slices.CompactFunc(all, func(a, b Frontend) bool { return a.AddrPort == b.AddrPort })
}

// appendFrontends appends the frontends of one Service port in the family of
// one ClusterIP.
func appendFrontends(to []Frontend, svc *Service, port ServicePort, clusterIP netip.Addr, s selection) []Frontend {
	add := func(kind FrontendKind, addr netip.Addr, number uint16, internal, external View) {
		if !sameFamily(addr, clusterIP) {
			return
		}
		at := AddrPort{Addr: addr, Port: number, Protocol: port.Protocol}
		f := Frontend{
			AddrPort: at, Kind: kind, Age: svc.Age, Port: port.Name,
			Views:   [NumViews]View{Internal: internal, External: external},
			Members: s.members, Policy: svc.Policy,
		}
		f.TableSize = tableSize(svc, len(s.members))
		if internal.FallsBack || external.FallsBack {
			f.Views[FallbackZone], f.Views[FallbackAll] = s.fallbackZone, s.fallbackAll
			f.Spill = s.spill
		}
		if kind == LoadBalancerIP {
			f.SourceRanges = rangesOf(svc.SourceRanges, addr)
		}
		if svc.Carries(kind, port.Protocol) {
			f.carry(s)
		}
		to = append(to, f)
	}
	internal := s.view(svc.InternalPolicy)
	add(ClusterIP, clusterIP, port.Port, internal, internal)

	here, elsewhere := s.view(PolicyCluster), s.view(svc.ExternalPolicy)
	if port.NodePort != 0 {
		add(NodePort, unspecified(clusterIP), port.NodePort, here, elsewhere)
	}
	for _, ip := range svc.LoadBalancerIPs {
		add(LoadBalancerIP, ip, port.Port, here, elsewhere)
	}
	for _, ip := range svc.ExternalIPs {
		add(ExternalIP, ip, port.Port, here, elsewhere)
	}
	return to
}

// rangesOf returns the source ranges of the family of addr. Where a Service
// has none of a family, everybody may use its addresses of that family.
func rangesOf(ranges []netip.Prefix, addr netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range ranges {
		if sameFamily(r.Addr(), addr) {
			out = append(out, r)
		}
	}
	return out
}

// keptBackends returns the backends that established flows may keep.
func keptBackends(candidates []candidate, c counts, p Protocol) []AddrPort {
	return pick(candidates, len(candidates), func(e *Endpoint) bool { return c.keeps(e, p) })
}

// keeps says whether established flows may keep an endpoint. Connections may keep any: they end by
// themselves. Datagrams may keep one that serves, and any while none serves: a short failure of
// the readiness probe of the last endpoint must not end connected sockets.
func (c counts) keeps(e *Endpoint, p Protocol) bool { return p != UDP || e.serves() || c.serving == 0 }

// serves says whether the endpoint answers clients: with publishNotReadyAddresses it may be ready
// and not serving.
func (e *Endpoint) serves() bool { return e.Serving || e.Ready }

// unspecified returns the unspecified address of the family of addr.
func unspecified(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
