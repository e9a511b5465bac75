package hostile_test

import (
	"context"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// ejectedForOne is the ejection of a client that avoids a backend for itself: that
// harms nobody else.
const ejectedForOne = 1

// watchEjected returns at how many looks, one each 20 ms until the context ends, a
// backend was ejected for all clients. None of the stage ever fails.
func (s *stage) watchEjected(ctx context.Context) (looks int) {
	s.tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.agent.Root, "maps", "backends"), nil)
	if err != nil {
		s.tb.Errorf("open the backends: %v", err)
		return 0
	}
	defer m.Close()
	at := s.offsetOf("backends", "ejection")
	for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		for id := range m.MaxEntries() {
			value, err := m.LookupBytes(id)
			if err != nil {
				s.tb.Errorf("look at backend %d: %v", id, err)
				return looks
			}
			if value[at] > ejectedForOne {
				looks++
				break
			}
		}
	}
	return looks
}

// offsetOf returns where the values of a map have a member.
func (s *stage) offsetOf(name, member string) int {
	s.tb.Helper()
	spec, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	if err != nil {
		s.tb.Error(err)
		return 0
	}
	if value, ok := btf.UnderlyingType(spec.Maps[name].Value).(*btf.Struct); ok {
		for _, m := range value.Members {
			if m.Name == member {
				return int(m.Offset.Bytes())
			}
		}
	}
	s.tb.Errorf("map %s has no member named %s", name, member)
	return 0
}
