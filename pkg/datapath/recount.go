package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Connections in flight are counted as they come and go. What nobody sees, such as
// a flow that made room for others or what happened while maps were replaced, is
// corrected here, without a stop: what there is is counted several times over, and
// only as much as every count says in the same direction is added or taken away.
// What comes and goes meanwhile points now this way, now the other.

// recounts is how often everything is counted for one correction.
const recounts = 3

// storedListers are the programs that list entries in socket storage, and the map
// that each goes through.
var storedListers = map[string]string{"list_stored": "stored_entries", "list_many": "many_entries"}

// Recount corrects the connections in flight of all backends by what socket NAT entries and
// flows there are, and returns how many corrections that took. It frees the slots of
// sockets that are gone, too, which takes several calls, and flows that are silent for long.
func (d *Datapath) Recount() (corrected int, err error) {
	err = errors.Join(d.freeStale(), d.freeSilentFlows())
	corrected, errCount := d.recount()
	return corrected, errors.Join(err, errCount)
}

func (d *Datapath) recount() (corrected int, err error) {
	l, err := d.newStoredListers()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	backends := d.maps.backends
	off := make([]int32, backends.len)
	for round := range recounts {
		if err := d.compare(off, round == 0, l); err != nil {
			return 0, err
		}
	}
	for id := range backends.len {
		if n := off[id]; n != 0 {
			addInFlight(&backends.at(id).InFlight, n)
			corrected++
		}
	}
	return corrected, nil
}

// addInFlight adds to a number that programs count with, but never below zero.
func addInFlight(at *int32, n int32) {
	for {
		have := atomic.LoadInt32(at)
		if atomic.CompareAndSwapInt32(at, have, max(have+n, 0)) {
			return
		}
	}
}

// compare counts everything once, and brings off nearer to zero, where what is
// counted differs by less from what the backends say.
func (d *Datapath) compare(off []int32, first bool, l iterators) error {
	backends := d.maps.backends
	before := make([]int32, backends.len)
	for id := range backends.len {
		before[id] = atomic.LoadInt32(&backends.at(id).InFlight)
	}
	counted, err := d.countAll(l)
	if err != nil {
		return err
	}
	for id := range backends.len {
		after := atomic.LoadInt32(&backends.at(id).InFlight)
		low, high := counted[id]-max(before[id], after), counted[id]-min(before[id], after)
		if first {
			off[id] = nearest(low, high)
			continue
		}
		off[id] = nearest(min(off[id], nearest(low, high)), max(off[id], nearest(low, high)))
	}
	return nil
}

// nearest returns the number between two that is nearest to zero.
func nearest(low, high int32) int32 {
	switch {
	case low > 0:
		return low
	case high < 0:
		return high
	default:
		return 0
	}
}

// countAll counts the socket NAT entries and flows of every backend.
func (d *Datapath) countAll(l iterators) ([]int32, error) {
	out := make([]int32, d.maps.backends.len)
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false)
	if err != nil {
		return nil, err
	}
	defer slots.Close()
	for i := range slots.len {
		if s := slots.at(i); s.Owner != 0 {
			d.countSocketEntry(out, &s.Entry)
		}
	}
	for _, it := range l {
		if err := d.countStored(out, it); err != nil {
			return nil, err
		}
	}
	return out, d.countFlows(out)
}

func (d *Datapath) countSocketEntry(out []int32, p *headgateSocketEntry) {
	if d.hasBackend(p) {
		out[p.BackendId]++
	}
}

// hasBackend says whether an entry is neither retired nor of a backend that is gone.
func (d *Datapath) hasBackend(p *headgateSocketEntry) bool {
	id := p.BackendId
	return id != 0 && id < d.maps.backends.len && d.maps.backends.at(id).To == p.backend()
}

// backend returns the backend of an entry without the flags in its padding.
func (p *headgateSocketEntry) backend() headgateAddrPort {
	b := p.Backend
	b.Pad = 0
	return b
}

// newStoredListers returns none where nothing was ever stored.
func (d *Datapath) newStoredListers() (iterators, error) {
	if n, err := d.storedEntries(); err != nil || n == 0 {
		return nil, err
	}
	return d.newIterators(storedListers, nil)
}

// countStored counts the entries that one program lists.
func (d *Datapath) countStored(out []int32, lister *link.Iter) error {
	it, err := lister.Open()
	if err != nil {
		return fmt.Errorf("open an iterator of socket storage: %w", err)
	}
	defer it.Close()
	var p headgateSocketEntry
	buffer := unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p))
	for r := bufio.NewReaderSize(it, 1<<16); ; d.countSocketEntry(out, &p) {
		switch _, err := io.ReadFull(r, buffer); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("list the socket NAT entries in socket storage: %w", err)
		}
	}
}

// countFlows counts the flows of packets. A flow of datagrams that has been silent
// for too long is over, though it is there.
func (d *Datapath) countFlows(out []int32) error {
	t, err := openFlowTable(d.maps, false)
	if err != nil {
		return err
	}
	defer t.Close()
	for w, f := range t.flows() {
		if w.has(headgateFlowFlagFLOW_COUNTED) && d.isFlowing(&f) && (f.isTCP() || w.idle(t.opened) <= udpFlowTimeout) {
			out[f.Known]++
		}
	}
	return nil
}

// isFlowing says whether the backend of a flow that is in flight is still there.
func (d *Datapath) isFlowing(f *headgateFlow) bool {
	if f.Known == 0 || f.Known >= d.maps.backends.len {
		return false
	}
	to := d.maps.backends.at(f.Known).To
	return to.Addr == f.To && to.Port == f.ToDstPort
}

// freeSilentFlows keeps the times of flows from beginning anew.
func (d *Datapath) freeSilentFlows() error {
	t, err := openFlowTable(d.maps, true)
	if err != nil {
		return err
	}
	defer t.Close()
	t.freeSilent(t.opened, func(f *headgateFlow) {
		if d.isFlowing(f) {
			addInFlight(&d.maps.backends.at(f.Known).InFlight, -1)
		}
	})
	return nil
}

// coarseClock returns what bpf_ktime_get_coarse_ns does.
func coarseClock() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now.Nano(), nil
}
