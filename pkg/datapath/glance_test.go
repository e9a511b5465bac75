package datapath

import (
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
)

// Whoever reads in order sees all of a map through a window, and whoever reads here and there gets all of it.
func TestAGlanceShowsWhatIsInTheMap(t *testing.T) {
	const elements = 20*glanceWindow/16 + 7
	s := seldomOf(t, elements)
	all, err := s.all(true)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for i := range all.len {
		*all.at(i) = row16{uint64(i), ^uint64(i)}
	}
	g := newGlance[row16](s.m)
	defer g.Close()
	look := func(i uint32) {
		t.Helper()
		if got := *g.at(i); got != *all.at(i) {
			t.Fatalf("element %d is %v, want %v", i, got, *all.at(i))
		}
	}
	for range 10 {
		for i := range g.len {
			look(i)
		}
	}
	if got := len(g.mem); got > 2*glanceWindow {
		t.Errorf("whoever reads in order has %d bytes in memory, want a window", got)
	}
	for range 1000 {
		look(rand.Uint32N(elements))
	}
	if got := uintptr(len(g.mem)); got != g.whole || g.failed != nil {
		t.Errorf("whoever reads here and there has %d bytes in memory, want all %d, error %v", got, g.whole, g.failed)
	}
}

// What is let go of is read through a window again.
func TestAGlanceRests(t *testing.T) {
	s := seldomOf(t, 20*glanceWindow/16)
	g := newGlance[row16](s.m)
	defer g.Close()
	for range 1000 {
		g.at(rand.Uint32N(g.len))
	}
	g.rest()
	if len(g.mem) > 0 {
		t.Errorf("%d bytes are in memory", len(g.mem))
	}
	if g.at(g.len - 1); len(g.mem) == 0 || len(g.mem) > 2*glanceWindow || g.failed != nil {
		t.Errorf("%d bytes are in memory, want a window, error %v", len(g.mem), g.failed)
	}
}

func TestAGlanceAtWhatCannotBeMappedSaysSo(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g := newGlance[row16](m)
	defer g.Close()
	if got := *g.at(2); got != (row16{}) || g.failed == nil {
		t.Errorf("got %v, error %v, of a map that cannot be mapped", got, g.failed)
	}
	if h := newGlance[headgateBackend](m); h.failed == nil {
		t.Error("a map with values of another size is taken")
	}
}
