package datapath

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// How much of a map is read by one call of the kernel: little at first, since many maps hold
// little, but no less than a bucket of a hash may have.
const (
	firstBatch = 128 // entries
	batchBytes = 256 << 10
)

// walk calls do with every entry of a hash or a trie, until it returns an error. It
// comes to an end although programs change the map meanwhile; what comes or goes may
// be missed.
func walk[K, V any](m *ebpf.Map, do func(*K, *V) error) error {
	var k K
	var v V
	most := min(batchBytes/int(unsafe.Sizeof(k)+unsafe.Sizeof(v)), int(m.MaxEntries()))
	n := min(most, firstBatch)
	keys, values := make([]K, n), make([]V, n)
	var cursor ebpf.MapBatchCursor
	for {
		read, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read map %s: %w", m, err)
		}
		for i := range read {
			if err := do(&keys[i], &values[i]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // that was the last of them
		}
		if len(keys) < most {
			keys, values = make([]K, most), make([]V, most)
		}
	}
}
