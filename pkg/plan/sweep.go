package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Mark is a point in a planner's time. What retires after it waits for the next.
type Mark uint64

// Retired says how many frontends, addresses, backends, tables and Service names wait for a sweep.
func (p *Planner) Retired() int {
	return len(p.strayRanges) + len(p.pool.retiredFrontends) + len(p.pool.retiredAddresses) + len(p.pool.retiredBackends) + len(p.pool.retiredTables) + len(p.pool.retiredServices)
}

// Sweep ends what nothing names any more: after a grace period it is cleared,
// and its IDs and slots are free for others.
func (p *Planner) Sweep() []Op {
	if p.Retired() == 0 {
		return nil
	}
	return append([]Op{Grace{}}, p.SweepTo(p.Mark())...)
}

// Mark ends what SweepTo may sweep later. It is to be called when everything
// planned so far has been applied, and the grace period is to begin after it:
// so the period can pass while changes go on.
func (p *Planner) Mark() Mark {
	p.pool.time++
	return p.pool.time - 1
}

// SweepTo is Sweep for what was retired before the mark, and has not been wanted
// again since. A grace period must have passed since then.
func (p *Planner) SweepTo(m Mark) []Op {
	var ops []Op
	for _, r := range p.strayRanges {
		if p.ranges[r.Range] == 0 { // nobody has asked for it since
			ops = append(ops, r)
		}
	}
	p.strayRanges = nil
	return append(ops, p.pool.sweep(m)...)
}

// sweep forgets what was retired before a mark and returns what clears it.
func (p *pool) sweep(m Mark) []Op {
	var frontends []lb.AddrPort
	var backends, services []uint32
	for key, t := range p.retiredTables {
		if t.retired <= m {
			p.regions.free(t.region)
			delete(p.tables, key)
			delete(p.retiredTables, key)
		}
	}
	for b, r := range p.retiredBackends {
		if r.retired <= m {
			backends = append(backends, r.id)
			p.backends.remove(b)
			delete(p.retiredBackends, b)
		}
	}
	for s, r := range p.retiredServices {
		if r.retired <= m {
			services = append(services, r.id)
			p.services.remove(s)
			delete(p.retiredServices, s)
		}
	}
	for key, retired := range p.retiredFrontends {
		if retired <= m {
			frontends = append(frontends, key)
			delete(p.retiredFrontends, key)
		}
	}
	maps.DeleteFunc(p.retiredAddresses, func(_ netip.Addr, retired Mark) bool { return retired <= m })
	slices.SortFunc(frontends, lb.AddrPort.Compare)
	slices.Sort(backends)
	slices.Sort(services)
	p.backendIDs.free(backends...)
	p.serviceIDs.free(services...)
	ops := make([]Op, 0, len(frontends)+len(backends)+len(services))
	for _, key := range frontends {
		ops = append(ops, ClearFrontend{Key: key})
	}
	for _, id := range backends {
		ops = append(ops, ClearBackend{ID: id})
	}
	for _, id := range services {
		ops = append(ops, ClearService{ID: id})
	}
	return ops
}
