package plan

import (
	"cmp"
	"sort"

	"github.com/headgate/headgate/pkg/lb"
)

// ration is what a Service gets where the limits leave no room for all.
type ration struct {
	lacks   limited // the map in which it uses most, where it is reduced or refused
	reduced bool    // its tables for hashes have the usual size
	refused bool
	keeps   bool // refused, but for what it has in force there is room
}

// concession is what a Service that uses most of a map can do for the others.
type concession struct {
	demand
	of     limited
	uses   uint64 // of that map, before
	saves  uses
	refuse bool // else its tables are reduced
}

// rationing decides who gets what. It depends on the demands and the limits alone: so
// it is the same on every node, in whatever order Services have come.
type rationing struct {
	limits  uses
	total   uses
	demands *keyed[lb.ServiceName, demand]
	rations map[lb.ServiceName]ration // of those that do not get all
	made    []concession
}

// divide has the Services that use most of a full map concede, the greatest first,
// until the others fit; those that fit again by what was conceded for other maps
// come back, the smallest first. So none gives way to one that uses more of the
// map, nor one that uses no more than the limit by the number of users.
func divide(demands *keyed[lb.ServiceName, demand], limits uses) *rationing {
	r := &rationing{limits: limits, demands: demands, rations: map[lb.ServiceName]ration{}}
	for d := range demands.all() {
		r.total = r.total.plus(d.full)
	}
	for m := range numLimited {
		if limits[m] > 0 && r.total[m] > limits[m] {
			r.relieve(m)
		}
	}
	for i := len(r.made) - 1; i >= 0; i-- {
		r.takeBack(r.made[i])
	}
	return r
}

// relieve has Services concede until a map is not over its limit.
func (r *rationing) relieve(m limited) {
	var all []concession
	for d := range r.demands.all() {
		has, left := r.rations[d.claim.Service], d.full
		if has.refused || left[m] == 0 {
			continue
		}
		if m == limitedSlots && d.spare > 0 {
			all = append(all, concession{*d, m, left[m], uses{limitedSlots: d.spare}, false})
			left = d.reduced()
		} else if has.reduced {
			left = d.reduced()
		}
		all = append(all, concession{*d, m, left[m], left, true})
	}
	sort.SliceStable(all, func(i, j int) bool { // slices.SortFunc is compiled for each type, which takes 23 kB of this one
		a, b := &all[i], &all[j]
		return cmp.Or(cmp.Compare(b.uses, a.uses), b.claim.Compare(a.claim)) < 0
	})
	for _, c := range all {
		if r.total[m] <= r.limits[m] {
			return
		}
		r.concede(c)
	}
}

func (r *rationing) concede(c concession) {
	has := r.rations[c.claim.Service]
	has.lacks = c.of
	has.refused, has.reduced = c.refuse, has.reduced || !c.refuse
	r.rations[c.claim.Service] = has
	r.total = r.total.minus(c.saves)
	r.made = append(r.made, c)
}

// takeBack undoes a concession for which there is no need any more; a Service that was
// refused may come back with reduced tables.
func (r *rationing) takeBack(c concession) {
	name := c.claim.Service
	has := r.rations[name]
	if has.refused && !c.refuse {
		return
	}
	after := r.total.plus(c.saves)
	if c.refuse && !after.fit(r.limits) {
		after, has.reduced = r.total.plus(c.reduced()), true
	}
	if !after.fit(r.limits) {
		return
	}
	r.total = after
	if !c.refuse || !has.reduced {
		delete(r.rations, name)
		return
	}
	r.rations[name] = ration{lacks: limitedSlots, reduced: true}
}
