package lb

import (
	"net/netip"
	"slices"
)

// Services with at least so many endpoints are brought up to date by the slices
// that change. For smaller ones keeping what that takes is not worth it.
const carryFrom = 256

// carryMost is by how many slices at once; beyond that it is as well to look at
// all of them.
const carryMost = 64

// part is what was found for one Service port in one family.
type part struct {
	port      ServicePort
	clusterIP netip.Addr
	selection selection
	// What it takes to bring the selection up to date.
	every  []AddrPort // the backends of all endpoints, sorted
	census census
	// carries is set where that can be done: where no two endpoints are the
	// same backend, and all have the same weight.
	carries bool
}

// partsOf looks at all endpoints of a Service. Where there are at least so many
// of them, they come with what it takes to be followed.
func partsOf(svc *Service, from []*Slice, node Node, carryFrom int) []part {
	var parts []part
	for _, port := range svc.Ports {
		for _, ip := range svc.ClusterIPs {
			all := gather(from, port, ip)
			n := len(all)
			candidates := withoutDuplicates(all)
			weigh(candidates, svc.Weights)
			selectable := takesConnections(candidates)
			p := part{port: port, clusterIP: ip, selection: selectEndpoints(selectable, svc, port, node)}
			p.selection.weightless = !p.selection.hasAny && anyUsable(candidates)
			p.selection.members = keptBackends(candidates, port.Protocol)
			if slices.Equal(p.selection.members, p.selection.cluster) {
				p.selection.members = p.selection.cluster // equal content, one slice
			}
			if p.carries = n == len(candidates) && n >= carryFrom && len(svc.Weights) == 0 && svc.Zones == ZoneHints && allPlain(candidates); p.carries {
				p.census, p.every = count(candidates, node), p.selection.members
				if len(p.every) != n {
					p.every = pick(candidates, n, func(*Endpoint) bool { return true })
				}
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// allPlain says whether all endpoints have the usual weight.
func allPlain(all []candidate) bool {
	return !slices.ContainsFunc(all, func(c candidate) bool { return c.endpoint.Drained || c.endpoint.Weight > DefaultWeight })
}

// carried is what is known of a large Service, and the slices by which it has
// changed since.
type carried struct {
	svc        *Service
	node       Node
	parts      []part
	gone, come []*Slice
}

// carry returns what is to be kept of a Service, nil where that is nothing.
func carry(svc *Service, node Node, parts []part) *carried {
	if len(parts) == 0 || slices.ContainsFunc(parts, func(p part) bool { return !p.carries }) {
		return nil
	}
	return &carried{svc: svc, node: node, parts: parts}
}

// follow brings everything up to date by the slices that have changed. It says
// whether it could: mostly, but not where other endpoints than those of the slices
// are chosen or left, now.
func (c *carried) follow(svc *Service, node Node) bool {
	if len(c.gone)+len(c.come) > carryMost || svc != c.svc || node.Name != c.node.Name || node.Zone != c.node.Zone {
		return false
	}
	parts := slices.Clone(c.parts)
	for i := range parts {
		if !parts[i].follow(svc, node, c.gone, c.come) {
			return false
		}
	}
	c.parts, c.gone, c.come = parts, nil, nil
	return true
}

func (p *part) follow(svc *Service, node Node, from, to []*Slice) bool {
	gone, come := gather(from, p.port, p.clusterIP), gather(to, p.port, p.clusterIP)
	census := p.census.plus(count(come, node)).minus(count(gone, node))
	cluster, local := census.clusterRule(), census.localRule()
	if !allPlain(come) || cluster != p.census.clusterRule() || local != p.census.localRule() {
		return false
	}
	edit := func(list []AddrPort, wanted func(*Endpoint) bool) ([]AddrPort, bool) {
		return edited(list, pick(gone, len(gone), wanted), pick(come, len(come), wanted))
	}
	s, old, ok := &p.selection, p.selection, true
	var done [4]bool
	s.clusterWhy = census.why(node)
	s.hasAny = census.ready+census.draining > 0
	p.every, done[0] = edit(p.every, func(*Endpoint) bool { return true })
	usesCluster, usesLocal := svc.uses(p.port)
	s.cluster, done[1] = edit(old.cluster, func(e *Endpoint) bool { return usesCluster && cluster.wants(e, node) })
	s.local, done[2] = edit(old.local, func(e *Endpoint) bool { return usesLocal && local.wants(e, node) })
	s.members, done[3] = edit(old.members, func(e *Endpoint) bool { return keeps(e, p.port.Protocol) })
	for _, d := range done {
		ok = ok && d
	}
	share(&s.members, p.every)
	share(&s.local, s.cluster)
	share(&s.members, s.cluster)
	p.census = census
	return ok
}

// changed notes that a slice is another one, nil where there is none.
func (c *carried) changed(gone, come *Slice) {
	if gone != nil {
		c.gone = append(c.gone, gone)
	}
	if come != nil {
		c.come = append(c.come, come)
	}
}

// share makes equal lists one.
func share(list *[]AddrPort, other []AddrPort) {
	if slices.Equal(*list, other) {
		*list = other
	}
}

// edited returns a sorted list of backends without those that are gone and with
// those that come; all are sorted. It is the list itself where that is the same.
// It cannot be done where one is not there that is to go, or there that is to
// come. What it costs beside copying is up to the changes alone.
func edited(list, gone, come []AddrPort) (out []AddrPort, ok bool) {
	gone, come = differ(gone, come)
	if len(gone)+len(come) == 0 {
		return list, true
	}
	if n := len(list) + len(come) - len(gone); n > 0 {
		out = make([]AddrPort, 0, n)
	}
	for len(gone)+len(come) > 0 {
		goes := len(come) == 0 || len(gone) > 0 && gone[0].Compare(come[0]) < 0
		next := &come
		if goes {
			next = &gone
		}
		one := (*next)[0]
		*next = (*next)[1:]
		i, there := slices.BinarySearchFunc(list, one, AddrPort.Compare)
		if there != goes || !goes && len(come) > 0 && come[0] == one {
			return nil, false
		}
		out = append(out, list[:i]...)
		if goes {
			i++
		} else {
			out = append(out, one)
		}
		list = list[i:]
	}
	return append(out, list...), true
}

// differ returns two sorted lists without what they have in common.
func differ(a, b []AddrPort) (onlyA, onlyB []AddrPort) {
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Compare(b[0]); {
		case c < 0:
			onlyA, a = append(onlyA, a[0]), a[1:]
		case c > 0:
			onlyB, b = append(onlyB, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}
