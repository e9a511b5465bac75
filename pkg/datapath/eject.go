package datapath

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// probeNoter is the program that notes what a probe has found out: whether that ejects the
// backend is decided in BPF alone.
const probeNoter = "note_probe"

// Eject notes what a probe has found out: that a backend is not well and gets no retry
// for so long, or that it is. It returns false where there is no such backend in force, or
// where no backend is ever ejected. How many of a Service are avoided at most is up to
// the programs.
func (d *Datapath) Eject(backend lb.AddrPort, eject bool, noRetryFor time.Duration) (bool, error) {
	if !d.isAttached() {
		return false, nil
	}
	to := encodeAddrPort(backend)
	id, err := d.maps.findBackend(to)
	if err != nil || id == 0 {
		return false, err
	}
	now, err := coarseClock()
	if err != nil {
		return false, err
	}
	result := headgateProbeResult{Backend: to, BackendId: id, NowNs: uint64(now), NoRetryNs: uint64(noRetryFor)}
	if eject {
		result.Failed = 1
	}
	program := d.held.programs[probeNoter]
	if program == nil {
		return false, fmt.Errorf("the object has no program %s", probeNoter)
	}
	known, err := program.Run(&ebpf.RunOptions{Context: result})
	if err != nil {
		return false, fmt.Errorf("run %s: %w", probeNoter, err)
	}
	return known != 0, nil
}

// findBackend returns the ID of a backend, 0 where it has none.
func (s *mapSet) findBackend(to headgateAddrPort) (uint32, error) {
	backends, err := s.backends.all(false)
	if err != nil {
		return 0, err
	}
	defer backends.Close()
	for id := uint32(1); id < backends.len; id++ {
		if backends.at(id).To == to {
			return id, nil
		}
	}
	return 0, nil
}
