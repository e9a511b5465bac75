package datapath

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// smallMaps returns maps of few elements that nothing is attached to.
func smallMaps(tb testing.TB) *mapSet {
	tb.Helper()
	spec, err := loadHeadgate()
	if err != nil {
		tb.Fatal(err)
	}
	s := &mapSet{byName: map[string]*ebpf.Map{}}
	tb.Cleanup(func() { s.Close() })
	for _, name := range []string{"about", "frontends", "fallbacks", "slots", "backends", "services", "service_cidrs", "source_ranges", "addresses", "peers", "peer_addresses", "slot_changes", addressFilter} {
		one := spec.Maps[name].Copy()
		one.Pinning = ebpf.PinNone
		if name != "about" && name != "service_cidrs" && name != addressFilter {
			one.MaxEntries = 8
		}
		if s.byName[name], err = ebpf.NewMap(one); err != nil {
			tb.Skipf("make map %s: %v", name, err)
		}
	}
	if err := s.mapMemory(true); err != nil {
		tb.Fatal(err)
	}
	return s
}

// scribble fills memory with data, over and over.
func scribble[T any](m *mapping[T], data []byte) {
	for i := range m.len {
		at := unsafe.Slice((*byte)(unsafe.Pointer(m.at(i))), unsafe.Sizeof(*m.at(i)))
		for j := range at {
			at[j] = data[(int(i)*len(at)+j)%len(data)]
		}
	}
}

// FuzzContent reads maps that hold anything, and adopts that: an error or something
// whole, and never more than the maps hold.
func FuzzContent(f *testing.F) {
	s := smallMaps(f)
	names, err := newMapping[headgateService](s.byName["services"], true)
	if err != nil {
		f.Fatal(err)
	}
	backends, err := s.allBackends(true)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { names.Close(); backends.Close() })
	f.Add([]byte{0}, []byte{1, 0, 0, 0}, []byte("default/web:http/TCP"), []byte{1, 2, 3, 4})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 4, 0, 0, 0}, []byte("a/b/UDP\x00"), []byte{0xff})
	f.Fuzz(func(t *testing.T, slots, frontends, services, keys []byte) {
		for _, b := range []*[]byte{&slots, &frontends, &services, &keys} {
			*b = append(*b, 0)
		}
		scribble(s.slots, slots)
		scribble(backends.mapping, slots)
		scribble(s.frontends, frontends)
		scribble(s.fallbacks, frontends)
		scribble(s.cidrs, keys)
		scribble(names, services)
		scribble(s.peers, services)
		for _, name := range []string{"source_ranges", "addresses", "peer_addresses", "slot_changes"} {
			m := s.byName[name]
			for i := range m.MaxEntries() {
				key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
				for j := range key {
					key[j] = keys[(int(i)+j)%len(keys)]
				}
				value[0] = byte(i)
				_ = m.Put(key, value) // some are no keys
				defer func() { _ = m.Delete(key) }()
			}
		}
		c, err := s.content()
		if err != nil {
			return
		}
		if room := 2 * int(s.slots.len*slotsPerChunk) * 8; len(c.String()) > 64*room {
			t.Errorf("%d bytes of content", len(c.String()))
		}
		if p, err := plan.Adopt(c, plan.Sizes{}); err == nil {
			p.Sweep()
		}
	})
}

func TestTablesThatCannotAllBeThereAreNotRead(t *testing.T) {
	s := smallMaps(t)
	for i := range s.frontends.len {
		f, _ := encodeFrontend(plan.Frontend{Members: plan.Table{Offset: i, Size: s.slots.len*slotsPerChunk - i}})
		f.At = headgateAddrPort{Port: uint16(i), Protocol: uint8(lb.TCP)}
		*s.frontends.at(i) = f
	}
	if c, err := s.content(); err == nil {
		t.Errorf("tables that overlap are read, %d times the map", len(c.Tables))
	}
}
