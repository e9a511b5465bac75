package plan

import (
	"cmp"
	"fmt"
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
		if gap := t.Offset - r.end; gap > 0 {
			r.unused = append(r.unused, Table{Offset: r.end, Size: gap})
		}
		r.end = t.Offset + t.Size
		r.used += t.Size
	}
	return r, nil
}

func (r *regions) alloc(size uint32) Table {
	r.used += size
	for i, f := range r.unused {
		if f.Size < size {
			continue
		}
		if f.Size == size {
			r.unused = slices.Delete(r.unused, i, i+1)
		} else {
			r.unused[i] = Table{Offset: f.Offset + size, Size: f.Size - size}
		}
		return Table{Offset: f.Offset, Size: size}
	}
	t := Table{Offset: r.end, Size: size}
	r.end += size
	return t
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
