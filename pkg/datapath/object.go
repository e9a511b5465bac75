package datapath

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// object is the compiled object with its knobs set.
type object struct {
	spec *ebpf.CollectionSpec
	hash [sha256.Size]byte // of the object and the knobs
}

// newObject reads the object and sets the knobs for this machine.
func newObject(cfg Config) (*object, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(cfg.Object))
	if err != nil {
		return nil, fmt.Errorf("read the BPF object: %w", err)
	}
	cookie, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	spec.Maps["promises"].MaxEntries = cfg.Promises
	if m := spec.Maps[storedSockets]; m != nil { // an older object has none
		m.MaxEntries = storedChunks(cfg.Promises)
	}
	spec.Maps["affinities"].MaxEntries = cfg.Affinities
	spec.Maps["conntrack"].MaxEntries = cfg.Flows
	spec.Maps["brief_flows"].MaxEntries = briefFlows(cfg.Flows)
	h := sha256.New()
	h.Write(cfg.Object)
	for _, knob := range []struct {
		name  string
		value any
	}{{"node_netns_cookie", cookie}, {"promises_mask", cfg.Promises - 1}, {"brief_flows_mask", briefFlows(cfg.Flows) - 1}, {"", cfg.Affinities}, {"", cfg.Flows}, {"ip6_csum_flag", ip6CsumFlag()},
		{"pod_devices", cfg.Pods}, {"redirect_flows", cfg.Redirect}, {"kernel_readable", !lockedDown()}, {"tick_us", tick()}, {"hash_key", cfg.HashKey}, {"suspect_after", cfg.SuspectAfter}, {"max_ejected_percent", cfg.MaxEjected}} {
		if v := spec.Variables[knob.name]; v != nil {
			if err := v.Set(knob.value); err != nil {
				return nil, fmt.Errorf("set knob %s: %w", knob.name, err)
			}
		}
		if err := binary.Write(h, binary.LittleEndian, knob.value); err != nil {
			return nil, fmt.Errorf("hash knob %s: %w", knob.name, err)
		}
	}
	return &object{spec: spec, hash: sha256.Sum256(h.Sum(nil))}, nil
}

// ip6CsumFlag returns BPF_F_IPV6 where the kernel has it: without, packets of
// devices that sum up whole frames get a wrong sum. Since Linux 6.16, and in
// stable kernels from 6.12.34 and 6.15.3 on, which are not told apart here.
func ip6CsumFlag() uint64 {
	const flag = 1 << 7
	var uname unix.Utsname
	if unix.Uname(&uname) != nil || olderThan(unix.ByteSliceToString(uname.Release[:]), "6.16") {
		return 0
	}
	return flag
}

// tick returns how long a jiffy of the kernel is, in µs: its coarse clocks go by them.
// It is the longest that there is where that cannot be known.
func tick() uint32 {
	var t unix.Timespec
	if unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &t) != nil || t.Nano() <= 0 {
		return 10_000
	}
	return uint32((t.Nano() + 999) / 1000)
}

// netnsCookie returns the kernel's cookie of this thread's network namespace.
func netnsCookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, explainLoad(err)
	}
	return cookie, nil
}

// resize sets the sizes of maps that are yet to be made.
func (o *object) resize(s plan.Sizes) {
	for name, entries := range map[string]uint32{
		"frontend_ids": s.Frontends,
		"frontends":    s.Frontends,
		"slots":        (s.Slots + slotsPerChunk - 1) / slotsPerChunk,
		"backends":     s.Backends,
		"services":     s.Services,
		"addresses":    s.Addresses,
	} {
		o.spec.Maps[name].MaxEntries = entries
	}
}

// laidOutAlike says whether every map of the set is there and has keys and
// values just as the object has them.
func (o *object) laidOutAlike(s *mapSet) bool {
	for name, spec := range o.spec.Maps {
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

// isInternal says whether a map is made by the loader, not by the C code.
func isInternal(name string) bool { return name[0] == '.' }

// load makes maps of the given sizes and loads the programs, but attaches
// nothing. Where from has maps that fit they are shared; what the others hold
// is copied, by the names of fields where they are laid out otherwise.
func load(o *object, sizes plan.Sizes, from *mapSet) (*mapSet, programSet, error) {
	o.resize(sizes)
	shared, copies := o.inherit(from)
	c, err := o.loadMaps(shared)
	if err != nil {
		return nil, nil, explainLoad(err)
	}
	programs, err := o.loadPrograms(c.Maps)
	s := &mapSet{byName: map[string]*ebpf.Map{}}
	for name, m := range c.Maps {
		if !isInternal(name) {
			s.byName[name] = m
			delete(c.Maps, name)
		}
	}
	c.Close()
	if err != nil {
		s.Close()
		return nil, nil, explainLoad(err)
	}
	err = s.fill(o, from, copies)
	for name, doubt := range hints {
		if err == nil && from != nil && shared[name] == nil {
			err = s.doubt(name, doubt)
		}
	}
	if err != nil {
		s.Close()
		programs.Close()
		return nil, nil, err
	}
	return s, programs, nil
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
		case name != "promises" && hints[name] == 0: // these go by their sockets, see takePromises
			copies[name] = c
		}
	}
	return shared, copies
}

// fill copies what the maps of another set hold, and says whose these are.
func (s *mapSet) fill(o *object, from *mapSet, copies map[string]*conversion) error {
	for name, c := range copies {
		if err := c.copy(s.byName[name], from.byName[name]); err != nil {
			return fmt.Errorf("take along map %s: %w", name, err)
		}
	}
	if err := s.mapMemory(true); err != nil {
		return err
	}
	s.about.at(0).Object = o.hash
	if from != nil && from.about != nil {
		s.about.at(0).Writes = from.about.at(0).Writes
	}
	return nil
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
var _ = [1]struct{}{}[unsafe.Offsetof(headgateFrontend{}.Internal)%8+unsafe.Offsetof(headgateFrontend{}.External)%8]
