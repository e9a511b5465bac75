package datapath

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf/btf"
)

// vocabulary is the names of what is counted, as the object itself has them.
type vocabulary struct {
	counters []string // by the words of headgateCounters
	drops    []string // by drop reason: DROP_NO_ENDPOINT is "no_endpoint"
}

var names = sync.OnceValues(func() (vocabulary, error) {
	types, err := builtInTypes()
	if err != nil {
		return vocabulary{}, err
	}
	var reasons *btf.Enum
	if err := types.TypeByName("drop_reason", &reasons); err != nil {
		return vocabulary{}, fmt.Errorf("drop reasons: %w", err)
	}
	var counters *btf.Struct
	if err := types.TypeByName("counters", &counters); err != nil {
		return vocabulary{}, fmt.Errorf("counters: %w", err)
	}
	var out vocabulary
	for _, m := range counters.Members {
		if _, one := btf.UnderlyingType(m.Type).(*btf.Int); one {
			out.counters = append(out.counters, m.Name)
		}
	}
	for _, v := range reasons.Values {
		if name, ok := strings.CutPrefix(v.Name, "DROP_"); ok && v.Name != "DROP_REASONS" {
			out.drops = append(out.drops, strings.ToLower(name))
		}
	}
	return out, nil
})

// words returns the counters as numbers one after the other, which they are: single
// ones first, drops last.
func (c *headgateCounters) words() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(c)), unsafe.Sizeof(*c)/unsafe.Sizeof(c.Connect))
}

// counters returns what all CPUs have counted.
func (s *mapSet) counters() (sum headgateCounters, err error) {
	var zero uint32
	var perCPU []headgateCounters
	if err := s.byName["counters"].Lookup(&zero, &perCPU); err != nil {
		return sum, fmt.Errorf("read the counters: %w", err)
	}
	total := sum.words()
	for cpu := range perCPU {
		for i, n := range perCPU[cpu].words() {
			total[i] += n
		}
	}
	return sum, nil
}

// Counters returns what was counted on the node: what happened, by name, and what was
// refused, by drop reason.
func (r *Reader) Counters() (events, drops map[string]uint64, err error) {
	sum, err := r.maps.counters()
	if err != nil {
		return nil, nil, err
	}
	names, err := names()
	if err != nil {
		return nil, nil, err
	}
	events, drops = map[string]uint64{}, map[string]uint64{}
	for i, name := range names.counters {
		events[name] = sum.words()[i]
	}
	for i, name := range names.drops {
		drops[name] = sum.Drops[i]
	}
	return events, drops, nil
}

// Refused returns how much was refused on the node, for whatever reason.
func (r *Reader) Refused() (total uint64, err error) {
	sum, err := r.maps.counters()
	for _, n := range sum.Drops {
		total += n
	}
	return total, err
}

// Connections returns how many connections of a Service port have begun since it was named.
func (r *Reader) Connections(service uint32) (uint64, error) {
	if service >= r.services.len {
		return 0, nil
	}
	return r.services.at(service).Connections, nil
}

// Drops returns what was refused of a Service port, by drop reason, without zeros: nil for nothing.
func (r *Reader) Drops(service uint32) (out map[string]uint64, err error) {
	if service >= r.services.len {
		return nil, nil
	}
	names, err := names()
	if err != nil {
		return nil, err
	}
	for i, n := range r.services.at(service).Drops {
		if n == 0 {
			continue
		}
		if out == nil {
			out = map[string]uint64{}
		}
		out[names.drops[i]] = n
	}
	return out, nil
}
