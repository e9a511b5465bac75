package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// formerFrontendIDs is a map of an earlier object: which element of the frontends map stands
// behind an address.
const formerFrontendIDs = "frontend_ids"

// takeFrontends takes along the frontends of another set of maps, whatever its order: each
// gets a place in this one.
func (s *mapSet) takeFrontends(o *object, from *mapSet) error {
	if from.byName["frontends"] == nil {
		return nil
	}
	if from.frontends != nil { // laid out as they are here
		return s.takeEach(from)
	}
	frontends, err := readAs[headgateFrontend](o, from, "frontends", "frontends")
	if err != nil {
		return fmt.Errorf("take along map frontends: %w", err)
	}
	source := "fallbacks"
	if from.byName[source] == nil { // they stood in the frontends
		source = "frontends"
	}
	fallbacks, err := readAs[headgateFallbacks](o, from, source, "fallbacks")
	if err != nil {
		return fmt.Errorf("take along map fallbacks: %w", err)
	}
	add := func(at headgateAddrPort, i uint32) error {
		if int(i) >= len(frontends) || int(i) >= len(fallbacks) {
			return nil
		}
		return s.takeFrontend(at, &frontends[i], &fallbacks[i])
	}
	if ids := from.byName[formerFrontendIDs]; ids != nil {
		return walk(ids, func(at *headgateAddrPort, id *uint32) error { return add(*at, *id) })
	}
	for i, f := range frontends {
		if err := add(f.At, uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

// takeEach takes along the frontends of a set that is in memory.
func (s *mapSet) takeEach(from *mapSet) error {
	for place := range from.frontends.len {
		f := from.frontends.at(place)
		if err := s.takeFrontend(f.At, f, from.fallbacks.at(place)); err != nil {
			return err
		}
	}
	return nil
}

// takeFrontend takes along what stands at a place, unless it is none or was taken from another.
func (s *mapSet) takeFrontend(at headgateAddrPort, f *headgateFrontend, fallbacks *headgateFallbacks) error {
	if !isFrontend(at) {
		return nil
	}
	if _, twice := s.findFrontend(at); twice {
		return nil
	}
	return s.addFrontend(at, *f, *fallbacks)
}

// readAs returns the elements of an array of another set of maps as those of one that the
// object has: zero where nothing can be taken along.
func readAs[T any](o *object, from *mapSet, name, as string) ([]T, error) {
	old := from.byName[name]
	out := make([]T, old.MaxEntries())
	c, err := newConversion(old, o.spec.Maps[as])
	if err != nil {
		return out, nil
	}
	return out, c.read(old, func(i uint32, value []byte) { out[i] = *(*T)(unsafe.Pointer(&value[0])) })
}

// read calls do with each element of an array, in the new layout.
func (c *conversion) read(from *ebpf.Map, do func(i uint32, value []byte)) error {
	mem, stride, err := mapArray(from, false)
	if err != nil {
		return err
	}
	for i := range from.MaxEntries() {
		do(i, apply(c.value, mem[uintptr(i)*stride:][:c.oldValue], c.newValue))
	}
	return unix.Munmap(mem)
}
