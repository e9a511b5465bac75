package plan

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// limited is a map that all Services share, and that has a limit.
type limited int

// The limited maps, in the order in which their limits are kept.
const (
	limitedFrontends limited = iota
	limitedSlots
	limitedBackends
	limitedServices
	limitedRanges
	numLimited
)

// String returns the name of the map.
func (m limited) String() string {
	return [numLimited]string{"frontends", "slots", "backends", "services", "source_ranges"}[m]
}

// remedy says how there is more room in the map.
func (m limited) remedy() string {
	if m == limitedRanges { // which has no flag
		return "join neighbouring ranges"
	}
	return "raise --max-" + m.String()
}

// uses counts entries of each limited map.
type uses [numLimited]uint64

// plus returns the sum of both.
func (u uses) plus(o uses) uses {
	for m := range u {
		u[m] += o[m]
	}
	return u
}

// minus returns what is left without others that it includes.
func (u uses) minus(o uses) uses {
	for m := range u {
		u[m] -= o[m]
	}
	return u
}

// fit says whether there is room for all; a limit of 0 is none.
func (u uses) fit(limits uses) bool {
	for m := range u {
		if limits[m] > 0 && u[m] > limits[m] {
			return false
		}
	}
	return true
}

// limitsOf returns the limits of the limited maps.
func limitsOf(s Sizes) uses {
	return uses{uint64(s.Frontends), uint64(s.Slots), uint64(s.Backends), uint64(s.Services), MaxSourceRanges}
}

// demand is what a Service asks for of what all share. It follows from the Service
// alone: what it shares with others counts for each, and what others have, or an
// earlier agent wrote, makes no difference.
type demand struct {
	claim lb.Claim // name and age
	full  uses
	spare uint64 // slots that tables for hashes of the usual size would save
}

// reduced returns what it asks for with tables of the usual size.
func (d demand) reduced() uses {
	u := d.full
	u[limitedSlots] -= d.spare
	return u
}

// demandOf returns what a Service asks for.
func (p *Planner) demandOf(name lb.ServiceName, frontends []lb.Frontend) demand {
	d := demand{claim: lb.Claim{Service: name}}
	tables, lists := distinct{}, map[Service][][]lb.AddrPort{}
	type portRange struct {
		port   Service
		prefix netip.Prefix
	}
	ranges := map[portRange]bool{}
	for _, f := range frontends {
		d.claim.Age = f.Age
		port := Service{name, f.Port, f.Protocol}
		if lists[port] == nil {
			lists[port] = [][]lb.AddrPort{}
		}
		for _, r := range f.SourceRanges {
			ranges[portRange{port, r.Masked()}] = true
		}
		for _, spec := range p.specsOf(name, f) {
			if !tables.add(spec) {
				continue
			}
			lists[port] = append(lists[port], spec.backends)
			d.full[limitedSlots] += uint64(spec.extent())
			if usual := spec.usual(); usual.extent() < spec.extent() {
				d.spare += uint64(spec.extent() - usual.extent())
			}
		}
	}
	for _, of := range lists {
		d.full[limitedBackends] += countBackends(of)
	}
	d.full[limitedFrontends] = uint64(len(frontends))
	d.full[limitedServices], d.full[limitedRanges] = uint64(len(lists)), uint64(len(ranges))
	return d
}

// usual returns the spec of a table of the size that goes by its backends.
func (s tableSpec) usual() tableSpec {
	s.size = 0
	return s
}

// countBackends counts the backends of lists, once each where a longer list has all of
// a shorter one: as the members have those of views.
func countBackends(lists [][]lb.AddrPort) (n uint64) {
	slices.SortStableFunc(lists, func(a, b []lb.AddrPort) int { return len(b) - len(a) })
	for i, list := range lists {
		if !slices.ContainsFunc(lists[:i], func(longer []lb.AddrPort) bool { return len(without(list, longer)) == 0 }) {
			n += uint64(len(list))
		}
	}
	return n
}

// without returns the backends of one list that are not in the other. Both are in order.
func without(all, others []lb.AddrPort) (left []lb.AddrPort) {
	for _, b := range all {
		for len(others) > 0 && others[0] != b && others[0].Compare(b) < 0 {
			others = others[1:]
		}
		if len(others) > 0 && others[0] == b {
			others = others[1:]
			continue
		}
		left = append(left, b)
	}
	return left
}

// distinct tells specs apart that ask for different tables.
type distinct map[tableLook][]tableSpec

// tableLook is equal for equal specs, and mostly for those alone.
type tableLook struct {
	first, last lb.AddrPort
	backends    int
	algorithm   lb.Algorithm
	size        uint32
}

// add says whether a spec is new and asks for a table at all.
func (d distinct) add(s tableSpec) bool {
	n := len(s.backends)
	if n == 0 {
		return false
	}
	if s.weights == nil && !s.algorithm.Hashed() && !hasCursor(s.algorithm) {
		s.algorithm = lb.Random // filled alike
	}
	look := tableLook{s.backends[0], s.backends[n-1], n, s.algorithm, s.size}
	if slices.ContainsFunc(d[look], s.equal) {
		return false
	}
	d[look] = append(d[look], s)
	return true
}

// inForce counts what a Service has of the limited maps.
func (p *Planner) inForce(name lb.ServiceName) (u uses) {
	tables, services, ranges := []*tableRef(nil), map[uint32]bool{}, map[SourceRange]bool{}
	for _, key := range p.owned[name] {
		e := p.frontends[key]
		for _, t := range e.tables {
			if t != nil && !slices.Contains(tables, t) {
				tables = append(tables, t)
				u[limitedSlots] += uint64(t.extent())
			}
		}
		for _, r := range e.ranges {
			ranges[SourceRange{e.value.Service, r.Masked()}] = true
		}
		services[e.value.Service] = true
	}
	u[limitedFrontends], u[limitedBackends] = uint64(len(p.owned[name])), countNamed(tables)
	u[limitedServices], u[limitedRanges] = uint64(len(services)), uint64(len(ranges))
	return u
}

// countNamed counts the backends that tables name, each once.
func countNamed(tables []*tableRef) uint64 {
	if len(tables) == 1 { // mostly, and it has none twice
		return uint64(len(tables[0].ids))
	}
	named := map[uint32]bool{}
	for _, t := range tables {
		for _, id := range t.ids {
			named[id] = true
		}
	}
	return uint64(len(named))
}
