package plan

import (
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// A packet within a connection of a carried frontend may come in at any node, which knows
// nothing of it but the slot of its hash. So slots have a history: the backends that they
// named before, and of which the Service has connections still. Where the home of a slot does
// not know a connection, it passes it on to the homes of these.

// ownersOf returns the former owners of a slot that names a backend now: those of what it, or
// others before it, named that the Service still has, in order.
func ownersOf(now uint32, known map[uint32]bool, named ...uint32) (was Owners) {
	n, seen := 0, map[uint32]bool{now: true}
	for _, id := range named {
		if n < len(was) && known[id] && !seen[id] {
			seen[id], was[n] = true, id
			n++
		}
	}
	return was
}

// carriedSlots is how many slots the table of a carried frontend has, by its backends. It
// follows from these alone, so that a node that is new agrees with the others. There are few
// steps: at each one nearly every slot gets other owners, and where the table becomes smaller
// it has to forget some.
func carriedSlots(backends int) uint32 {
	switch {
	case backends <= 1000:
		return 8089
	case backends <= 10000:
		return 65537
	default:
		return maglev.MaxSize
	}
}

// known returns the IDs of backends.
func (p *pool) known(backends []lb.AddrPort) map[uint32]bool {
	ids := make(map[uint32]bool, len(backends))
	for _, b := range backends {
		if id := p.backends.numberOf(compacted(b)); id != 0 {
			ids[id] = true
		}
	}
	return ids
}

// keepHistory returns the history of a carried table when its slots are about to name others,
// nil for a table that has none.
func (p *pool) keepHistory(t *tableRef, spec tableSpec, now []uint32) []Owners {
	if !spec.carried() {
		return nil
	}
	was, known := make([]Owners, len(now)), p.known(spec.members)
	copy(was, t.was)
	for i, id := range now {
		if id != t.slots[i] {
			was[i] = ownersOf(id, known, append([]uint32{t.slots[i]}, was[i][:]...)...)
		}
	}
	return was
}

// inherit has the slots of a carried table, which is not in force yet, know what those of the
// table before it named.
func (p *pool) inherit(t, base *tableRef, spec tableSpec, ops *[]Op) {
	if !spec.carried() || base == nil || base == t || base.slots == nil {
		return
	}
	known, op := p.known(spec.members), PutSlots{Table: t.table()}
	if t.was == nil {
		t.was = make([]Owners, t.size)
	}
	for i, id := range t.slots {
		was := ownersOf(id, known, append(base.owners(overlap(uint32(i), t.size, base.size)), t.was[i][:]...)...)
		if was != t.was[i] {
			t.was[i] = was
			op.Slots = append(op.Slots, SlotChange{Index: uint32(i), To: id, Was: was})
		}
	}
	if len(op.Slots) > 0 {
		*ops = append(*ops, op)
	}
}

// owners returns what slots of a table, from one to another, name and named before: first what
// they name.
func (t *tableRef) owners(first, last uint32) (ids []uint32) {
	ids = append(ids, t.slots[first:last+1]...)
	for i := first; i <= last && t.was != nil; i++ {
		ids = append(ids, t.was[i][:]...)
	}
	return ids
}

// overlap returns the first and the last slot, of a table of another size, in which a hash may
// be that is in a slot of a table of one size: a slot is the upper part of hash × size.
func overlap(slot, size, other uint32) (first, last uint32) {
	first = uint32(uint64(slot) * uint64(other) / uint64(size))
	last = uint32((uint64(slot+1)*uint64(other) - 1) / uint64(size))
	return first, min(last, other-1)
}

// history returns what the slots of a carried table named before, nil for nothing, or where
// the table has no owner.
func (c Content) history(t Table, owner Service) (was []Owners) {
	for i := range t.Size {
		if o := c.Owners[t.Offset+i]; o != (Owners{}) && owner != (Service{}) {
			if was == nil {
				was = make([]Owners, t.Size)
			}
			was[i] = o
		}
	}
	return was
}
