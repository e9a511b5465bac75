package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/plan"
)

// mapSet is one set of maps that belong together, pinned or not. A nil mapSet
// is one of nothing.
type mapSet struct {
	byName map[string]*ebpf.Map
	shares atomic.Int32 // how many more than one have to close it

	// Set where the maps are laid out as this process knows them.
	about     *aboutMap
	frontends *mapping[headgateFrontend]
	fallbacks *mapping[headgateFallbacks]
	slots     *mapping[headgateSlotChunk]
	backends  *seldom[headgateBackend]
	services  *seldom[headgateService]
	cidrs     *mapping[headgateServiceCidrs]
	filter    *mapping[headgateFilterChunk]
	peers     *mapping[headgatePeer]
	echoes    *mapping[headgateEchoRound]

	quarters map[bool]*[4]bool // see nodePorts

	factors frontendFactors // of the hash of frontends, set with the maps above
	crowded bool            // a frontend found no place: the next set draws other factors
}

// slotsPerChunk is how many slots come in one array element.
const slotsPerChunk = uint32(len(headgateSlotChunk{}.Backend))

// openMaps opens the maps pinned in a directory; none is no error. Those laid
// out otherwise than in an object are opened, but not mapped.
func openMaps(dir string, specs map[string]*ebpf.MapSpec, filter bool) (*mapSet, error) {
	s := &mapSet{byName: map[string]*ebpf.Map{}}
	for _, name := range append(slices.Collect(maps.Keys(specs)), formerFrontendIDs) {
		if isInternal(name) {
			continue
		}
		m, err := loadPinned(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("open pinned map %s: %w", filepath.Join(dir, name), err)
		}
		s.byName[name] = m
	}
	if len(s.byName) == 0 {
		return nil, nil
	}
	if !s.laidOutAs(specs) {
		return s, nil
	}
	if err := s.mapMemory(filter); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// loadPinned opens the map that is pinned in a directory by its name, or by the one
// that it had in an earlier object.
func loadPinned(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
	for _, former := range formerly["map "+name] {
		if errors.Is(err, fs.ErrNotExist) {
			m, err = ebpf.LoadPinnedMap(filepath.Join(dir, former), nil)
		}
	}
	return m, err
}

// laidOutAs says whether every map is there and has keys and values just as an object
// has them.
func (s *mapSet) laidOutAs(specs map[string]*ebpf.MapSpec) bool {
	for name, spec := range specs {
		if isInternal(name) {
			continue
		}
		c, err := newConversion(s.byName[name], spec)
		if err != nil || !c.identical {
			return false
		}
	}
	return true
}

// mapMemory maps the arrays that are written by stores, the filter of addresses, which is large, only for
// who writes it.
func (s *mapSet) mapMemory(filter bool) (err error) {
	about, err := newMapping[headgateAbout](s.byName["about"], true)
	if err != nil {
		return err
	}
	s.about = &aboutMap{about}
	s.factors = about.at(0).FrontendFactors
	if s.frontends, err = newMapping[headgateFrontend](s.byName["frontends"], true); err != nil {
		return err
	}
	if s.fallbacks, err = newMapping[headgateFallbacks](s.byName["fallbacks"], true); err != nil {
		return err
	}
	if s.slots, err = newMapping[headgateSlotChunk](s.byName["slots"], true); err != nil {
		return err
	}
	if s.backends, err = newSeldom[headgateBackend](s.byName["backends"]); err != nil {
		return err
	}
	if s.services, err = newSeldom[headgateService](s.byName["services"]); err != nil {
		return err
	}
	if s.cidrs, err = newMapping[headgateServiceCidrs](s.byName["service_cidrs"], true); err != nil {
		return err
	}
	if s.peers, err = newMapping[headgatePeer](s.byName["peers"], true); err != nil {
		return err
	}
	if m := s.byName[echoRoundsMap]; m != nil { // objects older than it have none
		if s.echoes, err = newMapping[headgateEchoRound](m, true); err != nil {
			return err
		}
	}
	if m := s.byName[addressFilter]; m != nil && filter { // objects older than it have none
		s.filter, err = newMapping[headgateFilterChunk](m, true)
	}
	return err
}

// setFactors sets the factors of new maps, which the next agent finds with them.
func (s *mapSet) setFactors(f frontendFactors) {
	s.factors, s.about.at(0).FrontendFactors = f, f
}

// share returns the set for one more who has to close it, whatever goroutine that is in.
func (s *mapSet) share() *mapSet {
	if s != nil {
		s.shares.Add(1)
	}
	return s
}

// Close lets go of the maps, once all have who share them; pinned or attached ones
// live on.
func (s *mapSet) Close() {
	if s == nil || s.shares.Add(-1) >= 0 {
		return
	}
	if s.about != nil {
		s.about.Close()
	}
	s.frontends.Close()
	s.fallbacks.Close()
	s.slots.Close()
	s.backends.Close()
	s.services.Close()
	s.cidrs.Close()
	s.filter.Close()
	s.peers.Close()
	s.echoes.Close()
	for _, m := range s.byName {
		m.Close()
	}
}

// matches says whether the maps were made by the same object with the same
// constants.
func (s *mapSet) matches(o *object) bool {
	return s != nil && s.about != nil && s.about.at(0).Object == o.hash
}

// sizes returns the room that the maps have.
func (s *mapSet) sizes() plan.Sizes {
	if s == nil {
		return plan.Sizes{}
	}
	entries := func(name string) uint32 {
		if m := s.byName[name]; m != nil {
			return m.MaxEntries()
		}
		return 0
	}
	return plan.Sizes{
		Frontends: frontendsIn(entries("frontends"), entries(formerFrontendIDs)),
		Slots:     entries("slots") * slotsPerChunk,
		Backends:  entries("backends"),
		Services:  entries("services"),
		Addresses: entries("addresses"),
		Peers:     entries("peers"),
	}
}

// pin pins the maps in a directory, in place of what is there.
func (s *mapSet) pin(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for name, m := range s.byName {
		// A clone, so that the map itself keeps its pin in the other set.
		c, err := m.Clone()
		if err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
		err = c.Pin(filepath.Join(dir, name))
		c.Close()
		if err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// aboutMap is the map that people read.
type aboutMap struct{ *mapping[headgateAbout] }

// describe says who uses the maps, where that is not said already.
func (a *aboutMap) describe(cfg Config) {
	at := a.at(0)
	for _, f := range []struct {
		dst []int8
		s   string
	}{{at.Version[:], cfg.Version}, {at.Node[:], cfg.Node}, {at.Cgroup[:], cfg.Cgroup}} {
		if decodeString(f.dst) != f.s {
			encodeString(f.dst, f.s)
		}
	}
}
