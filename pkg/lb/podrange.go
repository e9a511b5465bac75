package lb

import (
	"maps"
	"net/netip"
	"slices"
)

// podRanges are the prefixes from which Nodes give their pods addresses. An address is looked for
// once for each length of a prefix, however many Nodes there are.
type podRanges struct {
	of      map[string][]netip.Prefix        // by Node
	nodes   map[netip.Prefix]map[string]bool // the other way round
	lengths [129]int                         // how many prefixes have each length
}

// put says which prefixes a Node has.
func (r *podRanges) put(node string, ranges []netip.Prefix) {
	for _, p := range r.of[node] {
		if delete(r.nodes[p], node); len(r.nodes[p]) == 0 && r.nodes[p] != nil {
			delete(r.nodes, p)
			r.lengths[p.Bits()]--
		}
	}
	if r.of == nil {
		r.of, r.nodes = map[string][]netip.Prefix{}, map[netip.Prefix]map[string]bool{}
	}
	if r.of[node] = ranges; len(ranges) == 0 {
		delete(r.of, node)
	}
	for _, p := range ranges {
		if r.nodes[p] == nil {
			r.nodes[p] = map[string]bool{}
			r.lengths[p.Bits()]++
		}
		r.nodes[p][node] = true
	}
}

// find returns the longest prefix that has an address, and the first of its Nodes by name.
func (r *podRanges) find(addr netip.Addr) (p netip.Prefix, node string, ok bool) {
	for bits := addr.BitLen(); bits >= 0; bits-- {
		if r.lengths[bits] == 0 {
			continue
		}
		p, _ = addr.Prefix(bits)
		if names := r.nodes[p]; len(names) > 0 {
			return p, slices.Min(slices.Collect(maps.Keys(names))), true
		}
	}
	return p, "", false
}

// setPodRanges says which prefixes some Nodes have, none for a Node that is gone.
func (st *State) setPodRanges(all map[string][]netip.Prefix, dirty map[ServiceName]bool) {
	var was, is podRanges
	for node, ranges := range all {
		if old := st.podRanges.of[node]; !slices.Equal(old, ranges) {
			was.put(node, old)
			is.put(node, ranges)
			st.podRanges.put(node, ranges)
		}
	}
	if len(was.of)+len(is.of) == 0 {
		return
	}
	for addr, e := range st.externals {
		_, _, had := was.find(addr)
		if _, _, has := is.find(addr); had || has {
			maps.Copy(dirty, e.claimants)
		}
	}
}
