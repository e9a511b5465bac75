package plan

import (
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Frontends returns the frontends of a Service that are in force, as far as the maps tell
// which backends they have, and why. What drains is left out: its Service has it no more.
func (p *Planner) Frontends(name lb.ServiceName) []lb.Frontend {
	var all []lb.Frontend
	for _, key := range p.owned[name] {
		e := p.frontends[key]
		f := lb.Frontend{AddrPort: key, Kind: e.claim.Kind, Port: p.pool.services.at(e.value.Service).service.Port}
		for i, v := range e.value.Views {
			f.Views[i] = lb.View{NoLocal: v.NoLocal, Why: v.Why, FallsBack: v.FallsBack}
			f.Views[i].Backends, f.Views[i].Weights = p.pool.shares(e.tables[i])
		}
		members, _ := p.pool.shares(e.members())
		f.Members = slices.DeleteFunc(members, func(b lb.AddrPort) bool {
			d := p.draining[key]
			return d != nil && !d.left[b].IsZero()
		})
		all = append(all, f)
	}
	return all
}

// HasAt says whether a Service has a frontend in force.
func (p *Planner) HasAt(name lb.ServiceName, key lb.AddrPort) bool {
	e := p.frontends[key]
	return e != nil && e.claim.Service == name
}

// share is a backend of a table and its weight.
type share struct {
	backend lb.AddrPort
	weight  uint32
}

// shares returns the backends of a table in order, and the weights that it shows; nil
// where all are equal. A table for hashes shows none: its slots are a matter of chance.
func (p *pool) shares(t *tableRef) (backends []lb.AddrPort, weights []uint32) {
	if t == nil {
		return nil, nil
	}
	all := make([]share, len(t.ids))
	for i, id := range t.ids {
		all[i] = share{backend: p.backend(id)}
		if t.weights != nil {
			all[i].weight = t.weights[i]
		}
	}
	slices.SortFunc(all, func(a, b share) int { return a.backend.Compare(b.backend) })
	for _, s := range all {
		backends = append(backends, s.backend)
		if t.weights != nil {
			weights = append(weights, s.weight)
		}
	}
	return backends, weights
}

// weightsOf returns the weights of backends in the order in which a table names them
// first, nil where all are equal.
func (r run) weightsOf() []uint32 {
	count, order := map[uint32]uint32{}, []uint32(nil)
	for i, id := range r.slots {
		if count[id] == 0 {
			order = append(order, id)
		}
		if count[id]++; r.weights != nil {
			count[id] = r.weights[i]
		}
	}
	weights, equal := make([]uint32, len(order)), true
	for i, id := range order {
		weights[i] = count[id]
		equal = equal && weights[i] == weights[0]
	}
	if equal {
		return nil
	}
	return weights
}
