package datapath

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/headgate/headgate/pkg/plan"
)

// object is the compiled object with its load-time constants set.
type object struct {
	spec   *ebpf.CollectionSpec
	hash   [sha256.Size]byte // of the object, the constants, and the sizes of maps that do not grow
	traced bool              // programs at tracepoints note connections that fail
}

// newObject reads the object and sets its constants, and the sizes of maps that do not
// grow, for this machine. That takes milliseconds, so a Datapath does it once.
func newObject(cfg Config) (*object, error) {
	code := cfg.Object
	if code == nil {
		code = builtIn(compressed)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(code))
	if err != nil {
		return nil, fmt.Errorf("read the BPF object: %w", err)
	}
	constants, err := cfg.constants()
	if err != nil {
		return nil, err
	}
	if cfg.Object == nil { // that of another version may have others
		if err := wantConstants(spec, constants); err != nil {
			return nil, err
		}
	}
	if err := setConstants(spec, constants); err != nil {
		return nil, err
	}
	o, sizes := &object{spec: spec}, cfg.fixedSizes()
	o.traced = cfg.traced() && spec.Programs[tracers[0].program] != nil
	o.resize(sizes)
	h := sha256.New()
	h.Write(code)
	fmt.Fprint(h, constants, sizes) // in the order of names
	o.hash = sha256.Sum256(h.Sum(nil))
	return o, nil
}

// fixedSizes returns the entries of maps that do not grow, by name.
func (c Config) fixedSizes() map[string]uint32 {
	return map[string]uint32{
		"socket_nat":    c.SocketEntries,
		storedSockets:   storedChunks(c.SocketEntries),
		"affinities":    c.Affinities,
		"source_ranges": plan.SourceRangesRoom,
		flowTableMap:    flowSets(c.Flows),
		flowTrafficMap:  c.trafficSets(),
		"slot_changes":  c.changedSlots(),
		expressMap:      c.expressSets() * uint32(possibleCPUs()),
	}
}

// changedSlots returns how many slots are remembered that were changed. While nothing is
// carried only flows ask for them that lost their entries, and for minutes.
func (c Config) changedSlots() uint32 {
	if c.Carrying {
		return 1 << 17
	}
	return 1 << 15
}

// only returns a copy of the object with these of its programs, which may be changed
// and loaded. An older object may lack some.
func (o *object) only(programs iter.Seq[string]) *object {
	spec := *o.spec
	spec.Programs = map[string]*ebpf.ProgramSpec{}
	for name := range programs {
		if p := o.spec.Programs[name]; p != nil {
			spec.Programs[name] = p
		}
	}
	return &object{spec: spec.Copy(), hash: o.hash, traced: o.traced}
}

// growingSizes returns the entries of maps that grow, by name.
func growingSizes(s plan.Sizes) map[string]uint32 {
	return map[string]uint32{
		"frontends": placesFor(s.Frontends),
		"fallbacks": placesFor(s.Frontends),
		"slots":     (s.Slots + slotsPerChunk - 1) / slotsPerChunk,
		"backends":  s.Backends,
		"services":  s.Services,
		"addresses": s.Addresses,

		addressFilter: filterChunks(s.Addresses),

		"peers":          max(s.Peers, 1), // most nodes have none
		"peer_addresses": 2 * max(s.Peers, 1),
		"peer_counts":    max(s.Peers, 1),
		echoRoundsMap:    max(s.Peers, 1),
		peerWaysMap:      max(s.Peers, 1),
	}
}

// fit sets the sizes of maps that grow, and the constants of programs that work on them, as of a set of maps. An object
// that others may read is copied before.
func (o *object) fit(on *mapSet) error {
	s := on.sizes()
	o.resize(growingSizes(s))
	return setConstants(o.spec, map[string]any{
		"frontends_mask": placesFor(s.Frontends) - 1, "address_filter_shift": filterShift(filterChunks(s.Addresses)),
		"frontend_factors": on.factors,
	})
}

// resize sets the sizes of maps that are yet to be made; an older object may lack some.
func (o *object) resize(sizes map[string]uint32) {
	for name, entries := range sizes {
		if m := o.spec.Maps[name]; m != nil {
			m.MaxEntries = max(entries, 1)
		}
	}
}

// isInternal says whether a map is made by the loader, not by the C code.
func isInternal(name string) bool { return name[0] == '.' }

// emptyMaps are maps made for what another set holds, before they hold it.
type emptyMaps struct {
	*mapSet
	object *object
	from   *mapSet                // nil for nothing that they are to hold
	copies map[string]*conversion // how maps of from become these, by name; others are shared
}

// makeMaps makes maps of the given sizes. Where from has maps that fit they are shared.
func (o *object) makeMaps(sizes plan.Sizes, from *mapSet) (*emptyMaps, error) {
	o = o.only(slices.Values[[]string](nil))
	o.resize(growingSizes(sizes))
	shared, copies := o.inherit(from)
	c, err := o.loadMaps(shared)
	if err != nil {
		return nil, explainLoad(err)
	}
	s := &mapSet{byName: map[string]*ebpf.Map{}}
	for name, m := range c.Maps {
		if !isInternal(name) {
			s.byName[name] = m
			delete(c.Maps, name)
		}
	}
	c.Close()
	err = errors.Join(s.drawFactors(), s.mapMemory(true))
	switch {
	case err != nil:
	case shared["frontends"] != nil:
		s.setFactors(from.factors)
	default:
		s.setFactors(newFrontendFactors())
	}
	for name, doubt := range hints {
		if err == nil && from != nil && shared[name] == nil {
			err = s.doubt(name, doubt)
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return &emptyMaps{s, o, from, copies}, nil
}

// notCopied are maps that come along otherwise, see takeEntries, takeFlows and knowAll, or begin empty.
var notCopied = map[string]bool{
	"socket_nat": true, flowTableMap: true, flowTrafficMap: true, addressFilter: true, expressMap: true, peerWaysMap: true,
}

// inherit says which maps of a set fit as they are, and how the others become
// those of the object.
func (o *object) inherit(from *mapSet) (shared map[string]*ebpf.Map, copies map[string]*conversion) {
	shared, copies = map[string]*ebpf.Map{}, map[string]*conversion{}
	if from == nil {
		return shared, copies
	}
	for name, spec := range o.spec.Maps {
		old := from.byName[name]
		if isInternal(name) || old == nil || name == "about" {
			continue
		}
		c, err := newConversion(old, spec)
		switch {
		case err != nil:
			// Nothing to take along, such as socket storage laid out otherwise.
		case c.identical && old.MaxEntries() == spec.MaxEntries:
			shared[name] = old
		case !notCopied[name] && hints[name] == 0:
			copies[name] = c
		}
	}
	if shared[flowFactorsMap] == nil { // they say where in the table flows are
		delete(shared, flowTableMap)
	}
	if shared[flowTableMap] == nil { // each of its ways has a count
		delete(shared, flowTrafficMap)
	}
	if shared["frontends"] == nil || shared["fallbacks"] == nil || !from.matches(o) || from.crowded { // in another order
		for _, name := range []string{"frontends", "fallbacks"} {
			delete(shared, name)
			delete(copies, name)
		}
	}
	return shared, copies
}

// fill copies what the maps of the other set hold, by the names of fields where they are laid
// out otherwise, and says whose these are. They are closed if that fails.
func (e *emptyMaps) fill() (*mapSet, error) {
	if err := e.take(); err != nil {
		e.Close()
		return nil, err
	}
	return e.mapSet, nil
}

func (e *emptyMaps) take() error {
	s, from := e.mapSet, e.from
	for name, c := range e.copies {
		if err := c.copy(s.byName[name], from.byName[name]); err != nil {
			return fmt.Errorf("take along map %s: %w", name, err)
		}
	}
	if from != nil && !sameMap(s.byName["frontends"], from.byName["frontends"]) {
		if err := s.takeFrontends(e.object, from); err != nil {
			return err
		}
	}
	if from != nil {
		if err := s.knowAll(); err != nil {
			return err
		}
	}
	s.about.at(0).Object = e.object.hash
	if from != nil && from.about != nil {
		s.about.at(0).Writes = from.about.at(0).Writes
		s.about.at(0).Epoch = from.about.at(0).Epoch
		s.about.at(0).EchoesUntilNs = from.about.at(0).EchoesUntilNs
	}
	return s.noteRemoval() // programs before these may not have asked all flows
}

// sizeOf is the size of values of a BTF type, in bytes.
func sizeOf(t btf.Type) int {
	n, err := btf.Sizeof(t)
	if err != nil {
		return 0
	}
	return n
}

// The stores of tables rely on their alignment.
var _ = [1]struct{}{}[unsafe.Offsetof(headgateFrontend{}.Views)%8+unsafe.Offsetof(headgateFrontend{}.Members)%8]
