package lb

import (
	"cmp"
	"net/netip"
	"slices"
)

// weigh sets the weights of candidates, which the Service may set over those of
// its slices.
func weigh(all []candidate, weights []EndpointWeight) {
	for i := range all {
		e := all[i].endpoint
		all[i].weight = cmp.Or(e.Weight, DefaultWeight)
		if e.Drained {
			all[i].weight = 0
		}
		if w, ok := weightOf(weights, e.Addr); ok {
			all[i].weight = w
		}
	}
}

// weightOf returns the weight that a sorted list gives to an address.
func weightOf(weights []EndpointWeight, addr netip.Addr) (weight uint32, found bool) {
	i, found := slices.BinarySearchFunc(weights, addr, func(w EndpointWeight, a netip.Addr) int { return w.Addr.Compare(a) })
	if !found {
		return 0, false
	}
	return weights[i].Weight, true
}

// takesConnections returns the candidates whose weight is not 0.
func takesConnections(all []candidate) []candidate {
	drained := func(c candidate) bool { return c.weight == 0 }
	if !slices.ContainsFunc(all, drained) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), drained)
}

// anyUsable says whether some candidate would be usable, whatever its weight.
func anyUsable(all []candidate) bool {
	return slices.ContainsFunc(all, func(c candidate) bool { return c.endpoint.Ready || c.endpoint.draining() })
}

// weightsOf returns the weights of some of the candidates, nil where all are
// equal. Both are sorted.
func weightsOf(backends []AddrPort, candidates []candidate) []uint32 {
	if len(candidates) == 0 || !slices.ContainsFunc(candidates, func(c candidate) bool { return c.weight != candidates[0].weight }) {
		return nil
	}
	out := make([]uint32, 0, len(backends))
	equal := true
	for _, c := range candidates {
		if n := len(out); n < len(backends) && backends[n] == c.backend {
			out = append(out, c.weight)
			equal = equal && c.weight == out[0]
		}
	}
	if equal {
		return nil
	}
	return out
}

// withWeights returns a slice of which the weight cannot be used with the weights that
// were in force; the slice itself where it can be.
func (s *Slice) withWeights(old *Slice) *Slice {
	if !s.KeepWeights || old == nil {
		return s
	}
	had := map[netip.Addr]*Endpoint{}
	for i := range old.Endpoints {
		had[old.Endpoints[i].Addr] = &old.Endpoints[i]
	}
	out := *s
	out.Endpoints = slices.Clone(s.Endpoints)
	for i := range out.Endpoints {
		if e := had[out.Endpoints[i].Addr]; e != nil {
			out.Endpoints[i].Weight, out.Endpoints[i].Drained = e.Weight, e.Drained
		}
	}
	return &out
}
