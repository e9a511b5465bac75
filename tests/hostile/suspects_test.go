package hostile_test

import (
	"context"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// suspectToOne is the suspicion of a client that avoids a backend for itself: that
// harms nobody else.
const suspectToOne = 1

// watchSuspects returns at how many looks, one each 20 ms until the context ends, a
// backend was a suspect to all clients. None of the stage ever fails.
func (s *stage) watchSuspects(ctx context.Context) (looks int) {
	s.tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.agent.Root, "maps", "backends"), nil)
	if err != nil {
		s.tb.Errorf("open the backends: %v", err)
		return 0
	}
	defer m.Close()
	at := s.suspicionOffset()
	for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		for id := range m.MaxEntries() {
			value, err := m.LookupBytes(id)
			if err != nil {
				s.tb.Errorf("look at backend %d: %v", id, err)
				return looks
			}
			if value[at] > suspectToOne {
				looks++
				break
			}
		}
	}
	return looks
}

// suspicionOffset is where a backend has its suspicion.
func (s *stage) suspicionOffset() int {
	s.tb.Helper()
	spec, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	if err != nil {
		s.tb.Error(err)
		return 0
	}
	if backend, ok := btf.UnderlyingType(spec.Maps["backends"].Value).(*btf.Struct); ok {
		for _, member := range backend.Members {
			if member.Name == "suspicion" {
				return int(member.Offset.Bytes())
			}
		}
	}
	s.tb.Error("a backend has no member named suspicion")
	return 0
}
