package plan

// idPool hands out IDs from 1 upwards, so that equal input gives equal IDs.
type idPool struct {
	ids  *regions // a run of IDs each; the ID 0 is never free
	from uint32   // where the search for a free run goes on
	room uint32   // IDs beyond it take a larger map; 0: not known
}

// newIDPool returns a pool in which the used IDs are taken, which are in order.
func newIDPool(used ...uint32) *idPool {
	p := &idPool{ids: &regions{}}
	p.ids.take(Table{Size: 1})
	for _, id := range used {
		p.ids.take(Table{Offset: id, Size: 1})
	}
	return p
}

// alloc returns the lowest free ID.
func (p *idPool) alloc() uint32 { return p.ids.alloc(1).Offset }

// allocFor returns n IDs for what joins a table, the members of which have others
// already. They follow one of these, if there is room; else they begin a run that has
// room for all, so that there is some for what replaces the members; else they are any.
func (p *idPool) allocFor(members []uint32, n int) []uint32 {
	out := make([]uint32, n)
	first := p.runFor(members, uint32(n))
	for i := range out {
		if first == 0 {
			out[i] = p.alloc()
		} else {
			out[i] = first + uint32(i)
		}
	}
	if first != 0 {
		p.ids.take(Table{Offset: first, Size: uint32(n)})
	}
	return out
}

// runFor returns the first of n free IDs in a row, 0 for none. The pool grows for them
// only while at least half of it is in use, and the map need not grow.
func (p *idPool) runFor(members []uint32, n uint32) uint32 {
	all := n + uint32(len(members))
	grows := p.ids.end <= 2*p.ids.used && (p.room == 0 || p.ids.end+all <= p.room)
	var behind, most uint32
	for _, id := range members {
		if room := p.ids.roomAt(id + 1); room > most && (grows || id+1 < p.ids.end) {
			behind, most = id+1, room
		}
	}
	if most >= n {
		return behind
	}
	first, ok := p.ids.find(all, p.from)
	if !ok && grows {
		first = p.ids.end
	}
	p.from = first + all
	return first
}

// free makes IDs unused. Those at the end shrink the pool.
func (p *idPool) free(ids ...uint32) {
	for _, id := range ids {
		p.ids.free(Table{Offset: id, Size: 1})
	}
}

// size is the number of map entries that the IDs handed out so far need, with
// the entry 0 that stands for none.
func (p *idPool) size() uint32 { return p.ids.end }

// taken is the number of IDs that are in use.
func (p *idPool) taken() uint64 { return uint64(p.ids.used) - 1 }
