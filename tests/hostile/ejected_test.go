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
	at := s.ejectionOffset()
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

// ejectionOffset is where a backend has its ejection.
func (s *stage) ejectionOffset() int {
	s.tb.Helper()
	spec, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	if err != nil {
		s.tb.Error(err)
		return 0
	}
	if backend, ok := btf.UnderlyingType(spec.Maps["backends"].Value).(*btf.Struct); ok {
		for _, member := range backend.Members {
			if member.Name == "ejection" {
				return int(member.Offset.Bytes())
			}
		}
	}
	s.tb.Error("a backend has no member named ejection")
	return 0
}
