package datapath

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// conversion takes what a map holds into a map of the same name that may be
// laid out otherwise: fields go by their names, new ones are zero.
type conversion struct {
	key, value []move
	identical  bool // keys and values stay as they are
	perCPU     bool
	oldKey     int // sizes in bytes
	oldValue   int
	newKey     int
	newValue   int
}

// move is a run of bytes that a field has in two layouts.
type move struct{ from, to, size int }

// newConversion compares a map with the specification of its successor. It is
// an error if nothing can be taken along.
func newConversion(old *ebpf.Map, spec *ebpf.MapSpec) (*conversion, error) {
	if old == nil || old.Type() != spec.Type {
		return nil, errors.New("no such map")
	}
	h, err := old.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	types, err := h.Spec(nil)
	if err != nil {
		return nil, err
	}
	c := &conversion{
		oldKey: int(old.KeySize()), oldValue: int(old.ValueSize()),
		newKey: int(spec.KeySize), newValue: int(spec.ValueSize),
		perCPU: spec.Type == ebpf.PerCPUArray,
	}
	var sameKey, sameValue bool
	if c.key, sameKey, err = compareLayouts(types, spec.Key, c.oldKey); err != nil {
		return nil, err
	}
	if c.value, sameValue, err = compareLayouts(types, spec.Value, c.oldValue); err != nil {
		return nil, err
	}
	c.identical = sameKey && sameValue && old.Flags() == spec.Flags
	if spec.Type == ebpf.SkStorage && !c.identical {
		return nil, errors.New("socket storage cannot be copied")
	}
	return c, nil
}

// compareLayouts finds the type of the same name among those of an older
// object, and how its fields become those of the new one.
func compareLayouts(old *btf.Spec, now btf.Type, oldSize int) ([]move, bool, error) {
	was := now
	if s, ok := now.(*btf.Struct); ok {
		var err error
		if was, err = structNamed(old, s.Name); err != nil {
			return nil, false, fmt.Errorf("struct %s: %w", s.Name, err)
		}
	}
	if sizeOf(was) != oldSize {
		return nil, false, fmt.Errorf("type %v has %d bytes, the map has %d", was, sizeOf(was), oldSize)
	}
	moves := moveType(nil, was, now, 0, 0)
	same := sizeOf(was) == sizeOf(now)
	for _, m := range moves {
		same = same && m.from == m.to
	}
	return moves, same && covered(moves) == covered(moveType(nil, now, now, 0, 0)), nil
}

// structNamed finds the struct with a name among the types of an older object, or the
// one that has it now. There may be several, all alike: of a key, and of a member of
// values.
func structNamed(old *btf.Spec, name string) (btf.Type, error) {
	var (
		found []btf.Type
		err   error
	)
	for _, name := range append([]string{name}, formerly["struct "+name]...) {
		if found, err = old.AnyTypesByName(name); err == nil {
			return found[0], nil
		}
	}
	return nil, err
}

// covered is how many bytes the moves carry.
func covered(moves []move) (n int) {
	for _, m := range moves {
		n += m.size
	}
	return n
}

// moveType appends how a value of one type, at an offset, becomes one of
// another type.
func moveType(moves []move, was, now btf.Type, from, to int) []move {
	was, now = btf.UnderlyingType(was), btf.UnderlyingType(now)
	switch now := now.(type) {
	case *btf.Struct:
		old, ok := was.(*btf.Struct)
		if !ok {
			return moves
		}
		for _, m := range now.Members {
			moves = moveMember(moves, old, now, m, from, to)
		}
		return moves
	case *btf.Array:
		old, ok := was.(*btf.Array)
		if !ok { // what was one is now the first of several
			return moveType(moves, was, now.Type, from, to)
		}
		for i := range int(min(old.Nelems, now.Nelems)) {
			moves = moveType(moves, old.Type, now.Type, from+i*sizeOf(old.Type), to+i*sizeOf(now.Type))
		}
		return moves
	default:
		return appendMove(moves, move{from, to, min(sizeOf(was), sizeOf(now))})
	}
}

// formerly has the names that maps, structs and members of structs have in an earlier
// object, or those of elements of members. A member with several is made of these, one
// after the other, of those that there are.
var formerly = map[string][]string{
	"map address_filter": {"known_addresses"},
	"map fragment_queue": {"held"},
	"map frame_scratch":  {"held_scratch"},
	"map flow_filter":    {"known_ends"},
	"map flow_table":     {"conntrack"},
	"map socket_nat":     {"promises"},
	"map stored_entries": {"stored_promises"},

	"struct filter_chunk":   {"known_bits"},
	"struct queued_key":     {"held_key"},
	"struct queued_frame":   {"held_frame"},
	"struct socket_slot":    {"promise_slot"},
	"struct stored_entries": {"stored_promises"},
	"struct fallbacks":      {"frontend"},

	"about.flows_migrated": {"settled"},
	"datagram.queued":      {"held"},
	"datagram.seen":        {"known"},
	"frontend.members":     {"known"},
	"frontend.views":       {"internal", "external"},
	"fallbacks.to":         {"wider", "views[2]", "views[3]"},

	"slot_change.was": {"from"},

	"traffic.packets": {"pad"}, // was zero

	"socket_slot.entry":       {"promise"},
	"stored_entries.entry":    {"promise"},
	"backend.ejected_since_s": {"suspect_since_s"},
	"backend.retries":         {"trials"},

	"counters.backend_ejected":       {"backend_suspected"},
	"counters.backend_retry":         {"backend_trial"},
	"counters.fragment_queued":       {"fragment_held"},
	"counters.choice_fallback":       {"choice_widened"},
	"counters.socket_entry_stored":   {"promise_stored"},
	"counters.socket_entry_replaced": {"promise_replaced"},
	"counters.socket_entry_lost":     {"promise_lost"},
}

// moveMember appends how a member of a struct is filled from a value of the former
// one, at an offset.
func moveMember(moves []move, old, now *btf.Struct, m btf.Member, from, to int) []move {
	to += int(m.Offset.Bytes())
	if o, ok := member(old, m.Name); ok {
		return moveType(moves, o.Type, m.Type, from+int(o.Offset.Bytes()), to)
	}
	names := formerly[now.Name+"."+m.Name]
	for _, name := range names {
		o, ok := member(old, name)
		if !ok {
			continue
		}
		part := o.Type
		if len(names) == 1 {
			part = m.Type
		}
		moves = moveType(moves, o.Type, part, from+int(o.Offset.Bytes()), to)
		to += sizeOf(part)
	}
	return moves
}

// member returns the member with a name, or an element of it, as in "name[1]".
func member(s *btf.Struct, name string) (btf.Member, bool) {
	name, index, isElement := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
	if i < 0 {
		return btf.Member{}, false
	}
	m := s.Members[i]
	if !isElement {
		return m, true
	}
	n, err := strconv.ParseUint(index, 10, 32)
	array, ok := btf.UnderlyingType(m.Type).(*btf.Array)
	if err != nil || !ok || n >= uint64(array.Nelems) {
		return btf.Member{}, false
	}
	m.Type = array.Type
	m.Offset += btf.Bits(8 * int(n) * sizeOf(array.Type))
	return m, true
}

// appendMove appends a move, joined with the last one where it goes on there.
func appendMove(moves []move, m move) []move {
	if n := len(moves); n > 0 {
		last := &moves[n-1]
		if last.from+last.size == m.from && last.to+last.size == m.to {
			last.size += m.size
			return moves
		}
	}
	return append(moves, m)
}

// apply returns a value of the new layout, of size bytes.
func apply(moves []move, old []byte, size int) []byte {
	out := make([]byte, size)
	for _, m := range moves {
		copy(out[m.to:m.to+m.size], old[m.from:m.from+m.size])
	}
	return out
}

// copy fills a map from its predecessor. Entries that the predecessor's
// programs change meanwhile may come along in either state.
func (c *conversion) copy(to, from *ebpf.Map) error {
	switch {
	case c.perCPU:
		return c.copyPerCPU(to, from)
	case from.Type() == ebpf.LRUHash:
		return c.copyHash(to, from, ebpf.UpdateAny)
	case c.identical && from.Type() == ebpf.Array && from.Flags()&unix.BPF_F_MMAPABLE != 0:
		return copyMemory(to, from)
	case c.identical && from.Type() == ebpf.Hash:
		return c.copyBatches(to, from)
	}
	key, value := make([]byte, c.oldKey), make([]byte, c.oldValue)
	zero := make([]byte, c.newValue)
	isArray := from.Type() == ebpf.Array
	entries := from.Iterate()
	for n := uint32(0); entries.Next(&key, &value); n++ {
		if isArray && n >= to.MaxEntries() {
			break
		}
		v := apply(c.value, value, c.newValue)
		if isArray && string(v) == string(zero) {
			continue
		}
		if err := to.Put(apply(c.key, key, c.newKey), v); err != nil {
			return err
		}
	}
	return entries.Err()
}

// copyMemory copies an array that is laid out alike.
func copyMemory(to, from *ebpf.Map) error {
	was, _, err := mapArray(from, false)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(was) }() // fails only for memory that is not mapped
	is, _, err := mapArray(to, true)
	if err != nil {
		return err
	}
	copy(is, was)
	return unix.Munmap(is)
}

// copyBatches copies a hash that is laid out alike, many entries by a call of the kernel.
func (c *conversion) copyBatches(to, from *ebpf.Map) error {
	most := min(batchBytes/(c.oldKey+c.oldValue), int(from.MaxEntries()))
	keys, values := elements(most, c.oldKey), elements(most, c.oldValue)
	var cursor ebpf.MapBatchCursor
	for {
		n, readErr := from.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if readErr != nil && !errors.Is(readErr, ebpf.ErrKeyNotExist) {
			return readErr
		}
		if n > 0 {
			if _, err := to.BatchUpdate(keys.Slice(0, n).Interface(), values.Slice(0, n).Interface(), nil); err != nil {
				return err
			}
		}
		if readErr != nil {
			return nil // that was the last of them
		}
	}
}

// elements returns a slice of n elements of so many bytes.
func elements(n, size int) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
}

func (c *conversion) copyPerCPU(to, from *ebpf.Map) error {
	for key := range min(from.MaxEntries(), to.MaxEntries()) {
		var values [][]byte
		if err := from.Lookup(&key, &values); err != nil {
			return err
		}
		for i := range values {
			values[i] = apply(c.value, values[i], c.newValue)
		}
		if err := to.Put(&key, values); err != nil {
			return err
		}
	}
	return nil
}
