package lb

import (
	"net/netip"
	"slices"
)

// Selections of Services with at least so many endpoints are cached, and brought up to
// date by the slices that change. For smaller ones the cache is not worth it.
const cacheFrom = 256

// applyMost is the number of changed slices from which on it is cheaper to look at all
// of them.
const applyMost = 64

// part is what was found for one Service port in one family.
type part struct {
	port      ServicePort
	clusterIP netip.Addr
	selection selection
	// What it takes to bring the selection up to date.
	every  []AddrPort // the backends of all endpoints, sorted
	counts counts
	// cacheable is set where that can be done: where no two endpoints are the
	// same backend, all have the same weight, none is drained, and nothing is carried.
	cacheable bool
}

// partsOf looks at all endpoints of a Service. Where there are at least so many of them,
// the parts have what the cache needs.
func partsOf(svc *Service, from []*Slice, node Node, drained Drained, cacheFrom int) []part {
	var parts []part
	for _, port := range svc.Ports {
		for _, ip := range svc.ClusterIPs {
			all := gather(from, port, ip)
			n := len(all)
			candidates := withoutDuplicates(all)
			weigh(candidates, svc.Weights)
			drained.takeOut(candidates)
			selectable := takesConnections(candidates)
			p := part{port: port, clusterIP: ip, counts: count(candidates, node), selection: selectEndpoints(selectable, svc, port, node)}
			p.selection.weightless = !p.selection.hasAny && anyUsable(candidates)
			p.selection.members = keptBackends(candidates, p.counts, port.Protocol)
			if svc.Forwarding == DSR {
				p.selection.homes = homesOf(candidates, svc.Outside)
			}
			if slices.Equal(p.selection.members, p.selection.cluster) {
				p.selection.members = p.selection.cluster // equal content, one slice
			}
			if p.cacheable = n == len(candidates) && n >= cacheFrom && len(svc.Weights) == 0 && svc.Zones == ZoneHints && svc.Forwarding != DSR && allPlain(candidates) && !drained.hasAny(candidates); p.cacheable {
				p.every = p.selection.members
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

// selectionCache is what is known of a large Service, and the slices by which it has
// changed since.
type selectionCache struct {
	svc            *Service
	node           Node
	parts          []part
	removed, added []*Slice
}

// newCache returns the cache of a Service, nil where it gets none.
func newCache(svc *Service, node Node, parts []part) *selectionCache {
	if len(parts) == 0 || slices.ContainsFunc(parts, func(p part) bool { return !p.cacheable }) {
		return nil
	}
	return &selectionCache{svc: svc, node: node, parts: parts}
}

// apply brings everything up to date by the slices that have changed. It says
// whether it could: mostly, but not where other endpoints than those of the slices
// are chosen or left, now.
func (c *selectionCache) apply(svc *Service, node Node, drained Drained) bool {
	if len(c.removed)+len(c.added) > applyMost || svc != c.svc || node.Name != c.node.Name || node.Zone != c.node.Zone {
		return false
	}
	parts := slices.Clone(c.parts)
	for i := range parts {
		p := &parts[i]
		removed, added := gather(c.removed, p.port, p.clusterIP), gather(c.added, p.port, p.clusterIP)
		if drained.hasAny(added) || !p.apply(svc, node, removed, added) {
			return false
		}
	}
	c.parts, c.removed, c.added = parts, nil, nil
	return true
}

func (p *part) apply(svc *Service, node Node, removed, added []candidate) bool {
	counts := p.counts.plus(count(added, node)).minus(count(removed, node))
	cluster, local := counts.clusterRule(), counts.localRule()
	if !allPlain(added) || cluster != p.counts.clusterRule() || local != p.counts.localRule() || (counts.serving == 0) != (p.counts.serving == 0) {
		return false
	}
	s, edits := &p.selection, edits{removed: removed, added: added}
	s.clusterWhy = counts.why(node)
	s.hasAny = counts.ready+counts.draining > 0
	usesCluster, usesLocal := svc.uses(p.port)
	edits.of(&p.every, func(*Endpoint) bool { return true })
	edits.of(&s.cluster, func(e *Endpoint) bool { return usesCluster && cluster.wants(e, node) })
	edits.of(&s.local, func(e *Endpoint) bool { return usesLocal && local.wants(e, node) })
	edits.of(&s.members, func(e *Endpoint) bool { return counts.keeps(e, p.port.Protocol) })
	share(&s.members, p.every)
	share(&s.local, s.cluster)
	share(&s.members, s.cluster)
	p.counts = counts
	return !edits.failed
}

// edits are lists that change by the same endpoints. Those that are one list and change alike stay
// one: mostly all of them.
type edits struct {
	removed, added []candidate
	done           []edit
	failed         bool
}

// edit is a list, what goes and comes, and what it becomes.
type edit struct{ list, removed, added, out []AddrPort }

// of edits a list by those of the endpoints that are wanted there.
func (e *edits) of(list *[]AddrPort, wanted func(*Endpoint) bool) {
	now := edit{list: *list, removed: pick(e.removed, len(e.removed), wanted), added: pick(e.added, len(e.added), wanted)}
	for _, done := range e.done {
		if isOne(done.list, now.list) && slices.Equal(done.removed, now.removed) && slices.Equal(done.added, now.added) {
			*list = done.out
			return
		}
	}
	out, ok := edited(now.list, now.removed, now.added)
	*list, now.out, e.failed = out, out, e.failed || !ok
	e.done = append(e.done, now)
}

// isOne says whether two lists are the same in memory.
func isOne(a, b []AddrPort) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// changed notes that a slice is another one, nil where there is none.
func (c *selectionCache) changed(removed, added *Slice) {
	if removed != nil {
		c.removed = append(c.removed, removed)
	}
	if added != nil {
		c.added = append(c.added, added)
	}
}

// share makes equal lists one.
func share(list *[]AddrPort, other []AddrPort) {
	if !isOne(*list, other) && slices.Equal(*list, other) {
		*list = other
	}
}

// edited returns a sorted list of backends without those that are removed and with
// those that are added; all are sorted. It is the list itself where that is the same.
// It cannot be done where one to be removed is not there, or one to be added is. What
// it costs beside copying is up to the changes alone.
func edited(list, removed, added []AddrPort) (out []AddrPort, ok bool) {
	removed, added = differ(removed, added)
	if len(removed)+len(added) == 0 {
		return list, true
	}
	if n := len(list) + len(added) - len(removed); n > 0 {
		out = make([]AddrPort, 0, n)
	}
	for len(removed)+len(added) > 0 {
		goes := len(added) == 0 || len(removed) > 0 && removed[0].Compare(added[0]) < 0
		next := &added
		if goes {
			next = &removed
		}
		one := (*next)[0]
		*next = (*next)[1:]
		i, there := slices.BinarySearchFunc(list, one, AddrPort.Compare)
		if there != goes || !goes && len(added) > 0 && added[0] == one {
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
