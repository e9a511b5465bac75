package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// serviceConnections is the map of how many connections began of each Service port, on each CPU.
const serviceConnections = "service_connections"

// connectionsAtOnce is how many elements of it one call of the kernel reads.
const connectionsAtOnce = 1 << 10

// forgetConnections has those of a Service ID begin at 0.
func (s *mapSet) forgetConnections(service uint32) error {
	if err := s.byName[serviceConnections].Put(service, make([]uint64, possibleCPUs())); err != nil {
		return fmt.Errorf("begin to count the connections of Service %d: %w", service, err)
	}
	return nil
}

// connections returns how many connections began of all Service ports, by ID.
func (s *mapSet) connections() ([]uint64, error) {
	m := s.byName[serviceConnections]
	all := make([]uint64, 0, m.MaxEntries())
	keys := make([]uint32, min(connectionsAtOnce, m.MaxEntries()))
	perCPU := make([]uint64, len(keys)*possibleCPUs())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, perCPU, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("read how many connections began: %w", err)
		}
		for i := range n {
			all = append(all, sum(perCPU[i*possibleCPUs():][:possibleCPUs()]))
		}
		if err != nil {
			return all, nil // that was the last of them
		}
	}
}

func sum(all []uint64) (total uint64) {
	for _, n := range all {
		total += n
	}
	return total
}

// Connections returns how many connections of a Service port have begun since it was named.
func (r *Reader) Connections(service uint32) (_ uint64, err error) {
	if r.begun == nil {
		if r.begun, err = r.maps.connections(); err != nil {
			return 0, err
		}
	}
	if service >= uint32(len(r.begun)) {
		return 0, nil
	}
	return r.begun[service], nil
}
