package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// MaxSourceRanges is how many source ranges all Services together can have: 256
// times the share of one (package convert). The map takes memory for those there are.
const MaxSourceRanges = 1 << 20

// SourceRangesRoom is how many the map has room for.
const SourceRangesRoom = roomForLimit * MaxSourceRanges

func (r SourceRange) compare(o SourceRange) int {
	return cmp.Or(cmp.Compare(r.Service, o.Service), comparePrefixes(r.Prefix, o.Prefix))
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
}

// sourceRanges is who may use filtered frontends. The frontends of a Service
// port share their ranges, so each is counted.
type sourceRanges map[SourceRange]int

// use adds the ranges of a frontend, and appends what has to be written before
// the frontend.
func (s sourceRanges) use(service uint32, prefixes []netip.Prefix, ops *[]Op) {
	for _, p := range prefixes {
		r := SourceRange{service, p.Masked()}
		if s[r]++; s[r] == 1 {
			*ops = append(*ops, PutSourceRange{Range: r})
		}
	}
}

// drop ends a use, and appends what is to be removed after the frontend.
func (s sourceRanges) drop(service uint32, prefixes []netip.Prefix, ops *[]DeleteSourceRange) {
	for _, p := range prefixes {
		r := SourceRange{service, p.Masked()}
		if s[r]--; s[r] == 0 {
			delete(s, r)
			*ops = append(*ops, DeleteSourceRange{Range: r})
		}
	}
}

// useRanges takes the source ranges of what a change brings.
func (c *change) useRanges() {
	for _, t := range c.take {
		c.p.ranges.use(t.entry.value.Service, t.entry.ranges, &c.ops)
	}
}

// endRanges removes the source ranges that a change has dropped, those aside that
// were lost with one frontend and came back with another.
func (c *change) endRanges() {
	for _, op := range c.ended {
		if c.p.ranges[op.Range] == 0 {
			c.ops = append(c.ops, op)
		}
	}
}

// rangesOver says how many source ranges there would be, with those of a
// change, or 0 if the change adds none.
func (c *change) rangesOver() int {
	added := map[SourceRange]bool{}
	for _, t := range c.take {
		for _, p := range t.entry.ranges {
			if r := (SourceRange{t.entry.value.Service, p.Masked()}); c.p.ranges[r] == 0 {
				added[r] = true
			}
		}
	}
	if len(added) == 0 {
		return 0
	}
	return len(c.p.ranges) + len(added)
}

// adoptRanges gives the filtered frontends of each Service port the ranges that
// the maps hold for it. Ranges that no frontend uses are removed with the first
// sweep.
func (p *Planner) adoptRanges(held map[SourceRange]bool) {
	byService := map[uint32][]netip.Prefix{}
	inOrder := slices.SortedFunc(maps.Keys(held), SourceRange.compare)
	for _, r := range inOrder {
		byService[r.Service] = append(byService[r.Service], r.Prefix)
	}
	used := map[uint32]bool{}
	for _, e := range p.frontends {
		if e.value.Filtered {
			e.ranges = byService[e.value.Service]
			used[e.value.Service] = true
			var none []Op
			p.ranges.use(e.value.Service, e.ranges, &none)
		}
	}
	for _, r := range inOrder {
		if !used[r.Service] {
			p.strayRanges = append(p.strayRanges, DeleteSourceRange{Range: r})
		}
	}
}
