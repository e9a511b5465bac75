package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Without a number in Config.Flows there is room for one direction of a flow for
// so many bytes of memory, about 0.1 % of it: the nearest power of two, in bounds.
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

// takeAffinities takes along which backend clients had. Before programs of this process are
// in force what is there is replaced, after that it is newer, and stays.
func (d *Datapath) takeAffinities(how ebpf.MapUpdateFlags) error {
	for _, from := range d.flowsOf {
		if err := d.affinitiesOf(from, how); err != nil {
			return fmt.Errorf("take along affinities: %w", err)
		}
	}
	return nil
}

func (d *Datapath) affinitiesOf(from *mapSet, how ebpf.MapUpdateFlags) error {
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

// unfinished is where replacements that did not come to their end have their maps pinned,
// the last one first. Agents may die several times in a row, and flows may be known to the
// programs of any of them.
func unfinished(root string) (dirs []string) {
	for _, name := range []string{"next", "next_1", "next_2", "next_3"} {
		dirs = append(dirs, filepath.Join(root, name))
	}
	return dirs
}

// setAside makes room for the maps of one more replacement. Of too many the first ones go.
func (d *Datapath) setAside() error {
	dirs := unfinished(d.cfg.Root)
	if err := os.RemoveAll(dirs[len(dirs)-1]); err != nil {
		return err
	}
	for i := len(dirs) - 1; i > 0; i-- {
		if err := os.Rename(dirs[i-1], dirs[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openUnfinished opens what replacements have of sockets and flows that did not come to
// their end, the first one first: their processes died, but some of the programs may be in
// force.
func (d *Datapath) openUnfinished() (all []*mapSet) {
	for _, dir := range slices.Backward(unfinished(d.cfg.Root)) {
		s := &mapSet{byName: map[string]*ebpf.Map{}}
		for _, name := range []string{"about", "socket_nat", flowFilter, flowTableMap, affinitiesMap} {
			if m, err := loadPinned(dir, name); err == nil {
				s.byName[name] = m
			}
		}
		if len(s.byName) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// announceMove has programs that are about to be replaced drop what they do not know of TCP,
// as their successors do, and not reset it: it may have begun there.
func (d *Datapath) announceMove() error {
	for _, from := range d.flowsOf {
		if from == nil || from.byName["about"] == nil {
			continue
		}
		if c, err := newConversion(from.byName["about"], d.object.spec.Maps["about"]); err != nil || !c.identical {
			continue // nothing that this process could write
		}
		about, err := newMapping[headgateAbout](from.byName["about"], true)
		if err != nil {
			return err
		}
		about.at(0).FlowsMigrated = 0
		about.Close()
	}
	return nil
}
