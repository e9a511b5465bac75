package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// regions hands out runs of slots, first fit, and joins what comes back.
type regions struct {
	unused []Table // by offset; no two touch, none reaches end
	end    uint32  // every slot from here on is free
	used   uint32  // slots of all runs
}

// newRegions returns regions in which the used tables are taken. It is an
// error if two of them overlap.
func newRegions(used []Table) (*regions, error) {
	used = slices.Clone(used)
	slices.SortFunc(used, func(a, b Table) int { return cmp.Compare(a.Offset, b.Offset) })
	r := &regions{}
	for _, t := range used {
		if t.Offset < r.end {
			return nil, fmt.Errorf("table %s overlaps the one before it, which ends at slot %d", t, r.end)
		}
		r.take(t)
	}
	return r, nil
}

// alloc returns a run of free slots, the first that is long enough.
func (r *regions) alloc(size uint32) Table {
	t := Table{Offset: r.end, Size: size}
	if offset, ok := r.find(size, 0); ok {
		t.Offset = offset
	}
	r.take(t)
	return t
}

// find returns where so many slots are free before the end, the first place from a slot
// on, else the first at all.
func (r *regions) find(size, from uint32) (first uint32, ok bool) {
	for _, f := range r.unused {
		at, end := max(f.Offset, from), f.Offset+f.Size
		if at+size <= end {
			return at, true
		}
		if !ok && f.Size >= size {
			first, ok = f.Offset, true
		}
	}
	return first, ok
}

// roomAt returns how many slots are free from one on.
func (r *regions) roomAt(offset uint32) uint32 {
	if offset >= r.end {
		return math.MaxUint32 - offset
	}
	if i := r.gapAt(offset); i >= 0 {
		f := r.unused[i]
		return max(f.Offset+f.Size, offset) - offset
	}
	return 0
}

// gapAt returns the index of the last free run that begins at a slot or before, -1 for
// none.
func (r *regions) gapAt(offset uint32) int {
	i, found := slices.BinarySearchFunc(r.unused, offset, func(f Table, at uint32) int { return cmp.Compare(f.Offset, at) })
	if found {
		return i
	}
	return i - 1
}

// take takes a run that is free.
func (r *regions) take(t Table) {
	r.used += t.Size
	i, gap := len(r.unused), Table{Offset: r.end, Size: t.Offset - r.end}
	if t.Offset < r.end {
		i = r.gapAt(t.Offset)
		gap = r.unused[i]
		r.unused = slices.Delete(r.unused, i, i+1)
	} else {
		gap.Size += t.Size
		r.end = t.Offset + t.Size
	}
	behind := Table{Offset: t.Offset + t.Size, Size: gap.Offset + gap.Size - t.Offset - t.Size}
	before := Table{Offset: gap.Offset, Size: t.Offset - gap.Offset}
	for _, rest := range []Table{behind, before} {
		if rest.Size > 0 {
			r.unused = slices.Insert(r.unused, i, rest)
		}
	}
}

func (r *regions) free(t Table) {
	r.used -= t.Size
	i, _ := slices.BinarySearchFunc(r.unused, t, func(a, b Table) int { return cmp.Compare(a.Offset, b.Offset) })
	if i < len(r.unused) && t.Offset+t.Size == r.unused[i].Offset {
		t.Size += r.unused[i].Size
		r.unused = slices.Delete(r.unused, i, i+1)
	}
	if i > 0 && r.unused[i-1].Offset+r.unused[i-1].Size == t.Offset {
		i--
		t = Table{Offset: r.unused[i].Offset, Size: r.unused[i].Size + t.Size}
		r.unused = slices.Delete(r.unused, i, i+1)
	}
	if t.Offset+t.Size == r.end {
		r.end = t.Offset
		return
	}
	r.unused = slices.Insert(r.unused, i, t)
}

// lengths counts runs by how many slots they have.
type lengths struct {
	count   map[uint32]int
	longest uint32 // 0 where there is none
}

func (l *lengths) add(slots uint32) {
	l.count[slots]++
	l.longest = max(l.longest, slots)
}

func (l *lengths) remove(slots uint32) {
	if l.count[slots]--; l.count[slots] > 0 {
		return
	}
	delete(l.count, slots)
	if slots == l.longest {
		l.longest = 0
		for n := range l.count {
			l.longest = max(l.longest, n)
		}
	}
}
