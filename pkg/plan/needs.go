package plan

import "github.com/headgate/headgate/pkg/lb"

// SetRoom says what room there is: what is planned from then on takes more only where it has to.
func (p *Planner) SetRoom(room Sizes) { p.pool.backendIDs.room = room.Backends }

// Needs returns the sizes that hold everything planned so far.
func (p *Planner) Needs() Sizes {
	return Sizes{
		Frontends: uint32(len(p.frontends) + len(p.formers) + len(p.pool.retiredFrontends)),
		Slots:     p.pool.regions.end,
		Backends:  p.pool.backendIDs.size(),
		Services:  p.pool.serviceIDs.size(),
		Addresses: uint32(len(p.addresses) + len(p.pool.retiredAddresses)),
		Peers:     p.peers.size(),
	}
}

// NeedsWith returns the sizes that hold these Services, too, which have nothing in force yet and of
// which Ask has been told. They may need less, where they share what is there, or more, where no
// hole is large enough.
func (p *Planner) NeedsWith(names []lb.ServiceName) Sizes {
	var more uses
	for _, name := range names {
		more = more.plus(p.shared.of(name))
	}
	return p.Needs().AtLeast(p.taken().plus(more).sizes(p.Needs().Addresses + uint32(more[limitedFrontends])))
}

// NeedsAheadWith does so, and has entries to spare: about as many as NeedsAhead says once they are
// planned. What is beyond limits is not counted: it will be refused.
func (p *Planner) NeedsAheadWith(names []lb.ServiceName) Sizes {
	taken := p.taken()
	used, addresses := taken, p.Needs().Addresses
	for _, name := range names {
		wants := p.shared.of(name)
		used, addresses = used.plus(wants), addresses+uint32(wants[limitedFrontends])
	}
	for m, limit := range p.limits {
		if limit > 0 {
			used[m] = min(used[m], max(limit, taken[m]))
		}
	}
	return p.Needs().AtLeast(p.ahead(used, addresses))
}

// spareMost is how many entries of a map are spare at most: more than changes take while larger
// maps are prepared.
const spareMost = 16384

// withSpare returns a third more, so that maps are to grow when they are three quarters full.
func withSpare(n uint64) uint64 { return n + min(n/3, spareMost) }

// NeedsAhead returns the sizes that hold everything planned so far, and have entries to spare.
func (p *Planner) NeedsAhead() Sizes {
	return p.Needs().AtLeast(p.ahead(p.taken(), p.Needs().Addresses))
}

// NeedsAheadOnceSwept returns the sizes that hold what has not retired, and have entries to spare.
func (p *Planner) NeedsAheadOnceSwept() Sizes {
	return p.ahead(p.taken().minus(p.retired()), uint32(len(p.addresses)))
}

// spareRuns is how many runs of the longest table are spare among the slots: as many changes of it as
// come while a grace period passes.
const spareRuns = 8

// slotsAhead returns so many slots, and those to spare. Dense tables count as if they had slots: a change of
// one endpoint gives a table a run, so that a rollout would have the map grow in the midst of it. A third is
// spare however many there are: every change takes a run, and the one before it waits for a grace period.
func (p *Planner) slotsAhead(used uint64) uint64 {
	used += p.pool.dense
	return max(used+used/3, used+spareRuns*uint64(p.pool.runs.longest))
}

// nearlyNone is how few entries are left of a map that is nearly full: less than half of those that
// are spare when it has grown, or every change of a large one would wait.
func nearlyNone(n uint32) uint32 { return min(n/8, spareMost/2) }

// IsFullUntilSwept says whether maps are nearly full, and are not once what waits for a sweep goes.
// IDs may be spread over all of a map that is not full.
func (p *Planner) IsFullUntilSwept(room Sizes) bool {
	if p.Retired() == 0 {
		return false
	}
	return p.areFull(p.taken(), p.Needs().Addresses, room) && !p.areFull(p.taken().minus(p.retired()), uint32(len(p.addresses)), room)
}

// areFull says whether maps that hold so much have next to no room.
func (p *Planner) areFull(used uses, addresses uint32, room Sizes) bool {
	sizes := used.sizes(addresses)
	nearly := sizes.Merge(Sizes{}, func(n, _ uint32) uint32 { return n + nearlyNone(n) })
	nearly.Slots = max(nearly.Slots, sizes.Slots+p.pool.runs.longest)
	return !nearly.Fit(room)
}

// ahead returns the sizes that hold so much, and have entries to spare, though none beyond what limits leave
// room for: nothing is planned that needs those.
func (p *Planner) ahead(used uses, addresses uint32) Sizes {
	taken := used
	for m := range used {
		used[m] = withSpare(used[m])
	}
	used[limitedSlots] = p.slotsAhead(taken[limitedSlots])
	for m, limit := range p.limits {
		if limit > 0 {
			used[m] = min(used[m], max(taken[m], roomForLimit*limit))
		}
	}
	sizes := used.sizes(uint32(withSpare(uint64(addresses))))
	sizes.Peers = uint32(withSpare(uint64(p.peers.size())))
	return sizes
}

// sizes returns the sizes of maps that hold so much, gaps and peers apart.
func (u uses) sizes(addresses uint32) Sizes {
	const none = 1 // the ID 0
	return Sizes{
		Frontends: uint32(u[limitedFrontends]),
		Slots:     uint32(u[limitedSlots]),
		Backends:  uint32(u[limitedBackends]) + none,
		Services:  uint32(u[limitedServices]) + none,
		Addresses: addresses,
	}
}

// retired counts what waits to be cleared.
func (p *Planner) retired() uses {
	return uses{uint64(len(p.pool.retiredFrontends)), p.pool.retiredSlots, uint64(len(p.pool.retiredBackends)), uint64(len(p.pool.retiredServices))}
}
