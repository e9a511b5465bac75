package objects

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// broken is the objects that have problems, in order. With 100,000 of them sorting all takes as long
// as 100 changes, which whoever writes one of them could have the agent do again and again.
type broken struct {
	ordered  []ID
	turned   []ID // have become broken, or good, since
	problems int  // of all
}

// turnedMost is the number of objects from which on it is faster to sort all than to move each.
const turnedMost = 64

// note notes how many problems an object had and has.
func (b *broken) note(id ID, had, has int) {
	b.problems += has - had
	if (had > 0) != (has > 0) {
		b.turned = append(b.turned, id)
	}
}

// first returns the first problems, of as many objects as that takes.
func (b *broken) first(of map[ID][]lb.Problem) (out []lb.Problem) {
	b.order(of)
	for _, id := range b.ordered {
		if out = append(out, of[id]...); len(out) >= lb.MostTogether {
			return out[:lb.MostTogether:lb.MostTogether]
		}
	}
	return out
}

// order brings the order up to date.
func (b *broken) order(of map[ID][]lb.Problem) {
	turned := b.turned
	if b.turned = nil; len(turned) > turnedMost {
		b.ordered = slices.SortedFunc(maps.Keys(of), ID.Compare)
		return
	}
	for _, id := range turned {
		at, there := slices.BinarySearchFunc(b.ordered, id, ID.Compare)
		switch is := len(of[id]) > 0; {
		case is && !there:
			b.ordered = slices.Insert(b.ordered, at, id)
		case there && !is:
			b.ordered = slices.Delete(b.ordered, at, at+1)
		}
	}
}
