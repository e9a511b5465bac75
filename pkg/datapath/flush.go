package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// FlushAffinities forgets which backend clients of some Services had, or those that had some
// backends.
func (r *Reader) FlushAffinities(is func(service, backend uint32) bool) (n int, err error) {
	m := r.maps.byName[affinitiesMap]
	var keys []headgateAffinityKey
	err = walk(m, func(k *headgateAffinityKey, v *headgateAffinity) error {
		if is(k.Service, uint32(v.Had>>32)) {
			keys = append(keys, *k)
		}
		return nil
	})
	for i := range keys {
		switch failed := m.Delete(&keys[i]); {
		case failed == nil:
			n++
		case !errors.Is(failed, ebpf.ErrKeyNotExist): // others make room at the same time
			return n, fmt.Errorf("delete from map %s: %w", m, failed)
		}
	}
	return n, err
}

// FlushFlows forgets flows of some Services, or to some backends, as if they were the oldest and
// others needed the room, and returns how many directions that was. Programs use them meanwhile.
func (r *Reader) FlushFlows(is func(service, backend uint32) bool) (n int, err error) {
	t, err := openFlowTable(r.maps, true)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	backends, err := r.maps.allBackends(true)
	if err != nil {
		return 0, err
	}
	defer backends.Close()
	owners, err := r.flowOwners()
	if err != nil {
		return 0, err
	}
	going := map[uint32]headgateFlow{} // by way
	for w, f := range t.flows() {      // whose one is, others of its flow may tell: so all before the first goes
		if is(owners.of(t, w, &f)) {
			going[w.index] = f
		}
	}
	for index, was := range going {
		w := t.at(index) // noted since, perhaps
		f, ok := w.read()
		if !ok || !f.sameKey(&was) || !w.own() {
			continue
		}
		w.free() // at once: an agent that starts frees what is owned for long
		if w.has(headgateFlowFlagFLOW_COUNTED) {
			backends.uncount(&f)
		}
		n++
	}
	r.maps.newEpoch() // of what is repeated at the driver
	return n, nil
}
