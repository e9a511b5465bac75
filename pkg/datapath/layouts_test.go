package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// layout is what readers go by.
type layout struct {
	Type       ebpf.MapType
	Key, Value uint32
	Types      [2]string
	Flags      uint32
}

func layouts(specs map[string]*ebpf.MapSpec) map[string]layout {
	out := map[string]layout{}
	for name, m := range specs {
		if !isInternal(name) {
			out[name] = layout{m.Type, m.KeySize, m.ValueSize, [2]string{m.Key.TypeName(), m.Value.TypeName()}, m.Flags}
		}
	}
	return out
}

func TestTypesAloneSayHowMapsAreLaidOut(t *testing.T) {
	spec, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	types, err := builtInTypes()
	if err != nil {
		t.Fatal(err)
	}
	specs, err := mapSpecs(types)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(layouts(spec.Maps), layouts(specs)); diff != "" {
		t.Errorf("layouts of maps (-the object +its types):\n%s", diff)
	}
}

func TestNamesOfCountersAreThoseOfTheObject(t *testing.T) {
	n, err := names()
	if err != nil {
		t.Fatal(err)
	}
	var c headgateCounters
	if words := len(c.words()); len(n.counters)+len(n.drops) != words || len(n.drops) != len(c.Drops) {
		t.Errorf("%d counters and %d drop reasons have names, of %d numbers of which %d are drops", len(n.counters), len(n.drops), words, len(c.Drops))
	}
	c.FragmentReleased = 7
	if last := len(n.counters) - 1; n.counters[last] != "fragment_released" || c.words()[last] != 7 {
		t.Errorf("counter %d is %s", last, n.counters[last])
	}
}
