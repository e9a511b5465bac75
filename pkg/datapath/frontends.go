package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/pkg/plan"
)

// The frontends map is a hash table with open addressing and linear probing, which programs
// search (bpf/lb/frontend.h) while the agent writes it:
//
//   - A place is taken by the store of a port and a protocol, after everything else.
//   - A frontend that is removed leaves its place as one where it was, where the search goes
//     on. After a grace period the place is free for another.
//   - No frontend moves. If no place is free within reach, a map with other random factors replaces the map: a
//     larger one if an eighth of the places is taken, one of the same size otherwise.

// What stands as the protocol of places where no frontend is.
const (
	noFrontend      = uint8(headgateFrontendSearchFRONTEND_NONE)
	removedFrontend = uint8(headgateFrontendSearchFRONTEND_REMOVED)
)

// freed is a place where one was, which is free for another.
var freed = headgateAddrPort{Protocol: removedFrontend}

// errNoPlace says that no place is free within reach.
var errNoPlace = errors.New("no place is free for the frontend")

// frontendFactors are the random numbers by which the frontends map is in order.
type frontendFactors [len(headgateAbout{}.FrontendFactors)]uint64

// newFrontendFactors draws factors at random. They are secret: whoever has them can choose frontends that all have one place.
func newFrontendFactors() (f frontendFactors) {
	var random [unsafe.Sizeof(f)]byte
	_, _ = rand.Read(random[:]) // never fails
	for i := range f {
		f[i] = binary.NativeEndian.Uint64(random[8*i:])
	}
	return f
}

// hash is frontend_hash of bpf/lb/frontend.h.
func (f frontendFactors) hash(at headgateAddrPort) uint32 {
	sum := f[len(f)-1] * uint64(uint32(at.Port)<<16|uint32(at.Protocol))
	for i, word := range at.Addr.Word {
		sum += f[i] * uint64(word)
	}
	return uint32((sum ^ sum>>32) * uint64(headgateFilterHashFILTER_FACTOR_3) >> 32)
}

// sparseness is how many places per frontend a map has at least that does not grow for want of a place.
const sparseness = 8

// isSparse says whether so few places hold a frontend that chance does not fill the reach of one.
func (s *mapSet) isSparse() bool {
	frontends := uint64(0)
	for place := range s.frontends.len {
		if isFrontend(s.frontends.at(place).At) {
			frontends++
		}
	}
	return frontends*sparseness < uint64(s.frontends.len)
}

// placesFor returns how many places so many frontends need: a power of two, and twice as
// many at least.
func placesFor(frontends uint32) uint32 {
	places := uint32(2)
	for places < 2*frontends {
		places *= 2
	}
	return places
}

// frontendsIn returns how many frontends so many places are for. Where addresses had a map of
// their own, as in an earlier object, each had a place.
func frontendsIn(places, ids uint32) uint32 {
	if ids > 0 {
		return min(places, ids)
	}
	return places / 2
}

// isFrontend says whether what stands at a place is a frontend.
func isFrontend(at headgateAddrPort) bool {
	return at.Protocol != noFrontend && at.Protocol != removedFrontend
}

// reach returns the places at which a frontend may be, in the order of the search.
func (s *mapSet) reach(at headgateAddrPort) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		hash := s.factors.hash(at)
		for i := range uint32(headgateFrontendSearchFRONTEND_REACH) {
			if !yield((hash + i) & (s.frontends.len - 1)) {
				return
			}
		}
	}
}

// findFrontend returns the place of a frontend, false where there is none.
func (s *mapSet) findFrontend(at headgateAddrPort) (uint32, bool) {
	for place := range s.reach(at) {
		switch there := s.frontends.at(place).At; {
		case there == at:
			return place, true
		case there.Protocol == noFrontend:
			return 0, false
		}
	}
	return 0, false
}

// freePlace returns a place for a frontend, false if none is free. Where it has one until
// then, it is a place that is searched later: a program finds one or the other.
func (s *mapSet) freePlace(at headgateAddrPort) (place uint32, ok bool) {
	for next := range s.reach(at) {
		switch there := s.frontends.at(next).At; {
		case there == at:
			ok = false
		case there.Protocol == noFrontend && !ok:
			return next, true
		case there.Protocol == noFrontend:
			return place, true
		case there == freed && !ok:
			place, ok = next, true
		}
	}
	return place, ok
}

// putFrontend writes what stands behind an address: in its place, or in a new one.
func (s *mapSet) putFrontend(o plan.PutFrontend) error {
	at := encodeAddrPort(o.Key)
	f, fallbacks := encodeFrontend(o.Value)
	if err := s.knowFrontend(at, f.Flags); err != nil {
		return err
	}
	old, had := s.findFrontend(at)
	if had && !o.Anew {
		return s.changeFrontend(old, f, fallbacks)
	}
	if err := s.addFrontend(at, f, fallbacks); err != nil || !had {
		return err
	}
	s.removeFrontend(old)
	return s.noteRemoval()
}

// addFrontend puts a frontend in a place that is free.
func (s *mapSet) addFrontend(at headgateAddrPort, f headgateFrontend, fallbacks headgateFallbacks) error {
	place, ok := s.freePlace(at)
	if !ok {
		return errNoPlace
	}
	*s.fallbacks.at(place) = fallbacks
	there := s.frontends.at(place)
	f.Place, f.At = place, headgateAddrPort{Addr: at.Addr, Protocol: there.At.Protocol}
	*there = f
	storeEnd(&there.At, at)
	return nil
}

// changeFrontend writes what stands behind an address in use. Each table changes in one
// store, after everything else but whether the frontend is a former one.
func (s *mapSet) changeFrontend(place uint32, f headgateFrontend, fallbacks headgateFallbacks) error {
	at, others := s.frontends.at(place), s.fallbacks.at(place)
	was, rest := *at, f
	rest.Views, rest.Members, rest.Place, rest.At = was.Views, was.Members, place, was.At // as they are
	rest.Flags = f.Flags&^headgateFrontendFlagFRONTEND_FORMER | was.Flags&headgateFrontendFlagFRONTEND_FORMER
	*at = rest
	others.Spill = fallbacks.Spill
	for i, v := range fallbacks.To { // before the views that fall back
		storeView(&others.To[i], v)
	}
	for i := range slices.Backward(f.Views[:]) {
		storeView(&at.Views[i], f.Views[i])
	}
	storeTable(&at.Members, f.Members)
	at.Flags = f.Flags
	if was.Members.Size == 0 || (was.Members == f.Members && was.Service == f.Service) {
		return nil
	}
	return s.noteRemoval()
}

// deleteFrontend ends a frontend, and the flows that began by it.
func (s *mapSet) deleteFrontend(at headgateAddrPort) error {
	place, ok := s.findFrontend(at)
	if !ok {
		return nil
	}
	s.removeFrontend(place)
	return s.noteRemoval()
}

// removeFrontend leaves a place as one where a frontend was. Its address stays, so that the
// place can be told from others like it.
func (s *mapSet) removeFrontend(place uint32) {
	at := &s.frontends.at(place).At
	storeEnd(at, removed(*at))
}

// removed returns what stands where a frontend was.
func removed(at headgateAddrPort) headgateAddrPort {
	at.Pad, at.Protocol = at.Protocol, removedFrontend
	return at
}

// clearFrontend frees the places where a frontend was. A grace period must have passed.
func (s *mapSet) clearFrontend(at headgateAddrPort) {
	for place := range s.reach(at) {
		switch there := s.frontends.at(place).At; {
		case there.Protocol == noFrontend:
			return
		case there == removed(at):
			s.freePlaces(place)
		}
	}
}

// freePlaces frees places for others. Where the search ends behind it, it may as well end
// before.
func (s *mapSet) freePlaces(places ...uint32) {
	last := s.frontends.len - 1
	for _, place := range places {
		*s.frontends.at(place) = headgateFrontend{At: freed}
		for s.frontends.at(place).At == freed && s.frontends.at((place+1)&last).At.Protocol == noFrontend {
			storeEnd(&s.frontends.at(place).At, headgateAddrPort{})
			place = (place - 1) & last
		}
	}
}

// settleFrontends ends what a process left that died: a frontend that changed over to
// another place, and places where one was.
func (s *mapSet) settleFrontends() error {
	var left []uint32
	for place := range s.frontends.len {
		at := s.frontends.at(place).At
		if at.Protocol == noFrontend || at == freed {
			continue
		}
		if found, ok := s.findFrontend(at); isFrontend(at) && ok && found == place {
			continue
		}
		if isFrontend(at) {
			s.removeFrontend(place)
		}
		left = append(left, place)
	}
	if len(left) == 0 {
		return nil
	}
	if err := waitGrace(); err != nil {
		return err
	}
	s.freePlaces(left...)
	return nil
}

// storeEnd replaces port and protocol of an address that programs may be comparing, in one
// store.
func storeEnd(at *headgateAddrPort, end headgateAddrPort) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&at.Port)), *(*uint32)(unsafe.Pointer(&end.Port)))
}
