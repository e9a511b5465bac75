package plan

import (
	"container/heap"
	"slices"
)

// idPool hands out IDs from 1 upwards, the lowest free one first, so that equal
// input gives equal IDs.
type idPool struct {
	next   uint32 // every ID from here on is free
	unused idHeap // free IDs below next
}

// newIDPool returns a pool in which the used IDs are taken.
func newIDPool(used map[uint32]bool) *idPool {
	p := &idPool{next: 1}
	for id := range used {
		p.next = max(p.next, id+1)
	}
	for id := uint32(1); id < p.next; id++ {
		if !used[id] {
			p.unused = append(p.unused, id) // ascending: already a heap
		}
	}
	return p
}

func (p *idPool) alloc() uint32 {
	if len(p.unused) > 0 {
		return heap.Pop(&p.unused).(uint32)
	}
	p.next++
	return p.next - 1
}

// free makes IDs unused. Those at the end shrink the pool.
func (p *idPool) free(ids ...uint32) {
	p.unused = append(p.unused, ids...)
	slices.Sort(p.unused) // sorted is a heap, too
	for n := len(p.unused); n > 0 && p.unused[n-1] == p.next-1; n-- {
		p.unused = p.unused[:n-1]
		p.next--
	}
}

// size is the number of map entries that the IDs handed out so far need, with
// the entry 0 that stands for none.
func (p *idPool) size() uint32 { return p.next }

// taken is the number of IDs that are in use.
func (p *idPool) taken() uint64 { return uint64(p.next) - 1 - uint64(len(p.unused)) }

type idHeap []uint32

func (h idHeap) Len() int           { return len(h) }
func (h idHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h idHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *idHeap) Push(x any)        { *h = append(*h, x.(uint32)) }
func (h *idHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
