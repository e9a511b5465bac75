package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Mark is a point in a planner's time. What retires after it waits for the next.
type Mark uint64

// Retired says how many frontends, addresses, backends, tables, Service names and peers wait for a sweep.
func (p *Planner) Retired() int {
	return len(p.strayRanges) + len(p.pool.retiredFrontends) + len(p.pool.retiredAddresses) + len(p.pool.retiredBackends) + len(p.pool.retiredTables) + len(p.pool.retiredServices) + len(p.peers.retired)
}

// HasMuchRetired says whether so much of a map waits for a sweep, an eighth of the room, that it should
// begin at once. Of a large Service each change takes as many slots as the Service has backends.
func (p *Planner) HasMuchRetired(room Sizes) bool {
	retired := p.retired().sizes(uint32(len(p.pool.retiredAddresses)))
	return !retired.Merge(Sizes{}, func(n, _ uint32) uint32 { return 8 * n }).Fit(room)
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
	ops = append(ops, p.pool.sweep(m)...)
	return append(ops, p.peers.sweep(m)...)
}

// sweep forgets what was retired before a mark and returns what clears it.
func (p *pool) sweep(m Mark) []Op {
	var frontends []lb.AddrPort
	var backends, services []uint32
	for key, t := range p.retiredTables {
		if t.retired <= m {
			p.freeRun(t)
			delete(p.tables, key)
			p.recallTable(key)
		}
	}
	for id, retired := range p.retiredBackends {
		if retired <= m {
			backends = append(backends, id)
			delete(p.homes, id)
			p.backends.removeAt(id)
			delete(p.retiredBackends, id)
		}
	}
	for id, retired := range p.retiredServices {
		if retired <= m {
			services = append(services, id)
			p.services.removeAt(id)
			delete(p.retiredServices, id)
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
