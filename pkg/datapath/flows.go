package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Without a number in Config.Flows there is one entry for flows for so many
// bytes of memory, about 0.3 % of it: the nearest power of two, in bounds.
const (
	memoryPerFlow = 64 << 10
	minFlows      = 1 << 16
	maxFlows      = 1 << 22
)

// flowsFor returns how many entries for flows there are with so much memory, in
// bytes.
func flowsFor(memory uint64) uint32 {
	n := memory / memoryPerFlow
	nearest := uint64(1) << max(0, bits.Len64(n+n/3)-1) // up from three quarters of the next
	return uint32(min(max(nearest, minFlows), maxFlows))
}

// memoryOfMachine is the memory that the machine has, in bytes.
func memoryOfMachine() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

const affinitiesMap = "affinities"

// takeFlows takes along what programs that are or were in force know of flows and
// clients, where these maps are not the same. Affinities of the programs of this
// process are replaced before they are in force; after that they are newer, and stay.
func (d *Datapath) takeFlows(how ebpf.MapUpdateFlags) error {
	for _, from := range slices.Backward(d.flowsOf) { // of the last one first: nothing is replaced
		if err := d.doubtEnds(from); err != nil {
			return err
		}
		if err := d.moveFlows(from); err != nil {
			return fmt.Errorf("take along flows: %w", err)
		}
	}
	for _, from := range d.flowsOf {
		if err := d.takeAffinities(from, how); err != nil {
			return fmt.Errorf("take along affinities: %w", err)
		}
	}
	return nil
}

func (d *Datapath) takeAffinities(from *mapSet, how ebpf.MapUpdateFlags) error {
	if from == nil || from.byName[affinitiesMap] == nil || sameMap(from.byName[affinitiesMap], d.maps.byName[affinitiesMap]) {
		return nil
	}
	c, err := newConversion(from.byName[affinitiesMap], d.object.spec.Maps[affinitiesMap])
	if err != nil {
		return nil // nothing that this process could read
	}
	return c.copyHash(d.maps.byName[affinitiesMap], from.byName[affinitiesMap], how)
}

// copyHash copies a hash bucket by bucket, so that it comes to an end although
// programs change it meanwhile.
func (c *conversion) copyHash(to, from *ebpf.Map, how ebpf.MapUpdateFlags) error {
	const batch = 4096
	slice := func(size int) reflect.Value {
		return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), batch, batch)
	}
	keys, values := slice(c.oldKey), slice(c.oldValue)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := from.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			key, value := keys.Index(i).Slice(0, c.oldKey).Bytes(), values.Index(i).Slice(0, c.oldValue).Bytes()
			putErr := to.Update(apply(c.key, key, c.newKey), apply(c.value, value, c.newValue), how)
			if putErr != nil && !errors.Is(putErr, ebpf.ErrKeyExist) {
				return putErr
			}
		}
		if err != nil {
			return nil // that was the last of them
		}
	}
}

// openUnfinished opens what a replacement has of sockets and flows that did not
// come to its end: its process died, but some of its programs may be in force. It
// returns nil if there is none.
func (d *Datapath) openUnfinished() *mapSet {
	s := &mapSet{byName: map[string]*ebpf.Map{}}
	for _, name := range []string{"socket_nat", flowFilter, flowTableMap, affinitiesMap} {
		if m, err := loadPinned(d.path("next"), name); err == nil {
			s.byName[name] = m
		}
	}
	if len(s.byName) == 0 {
		return nil
	}
	return s
}
