package datapath

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Connections in flight are counted as they come and go. What nobody sees, such as
// a flow that made room for others or what happened while maps were replaced, is
// corrected here, without a stop: what there is is counted several times over, and
// only as much as every count says in the same direction is added or taken away.
// What comes and goes meanwhile points now this way, now the other.

// recounts is how often everything is counted for one correction.
const recounts = 3

// storedLister is the program that lists promises in socket storage.
const storedLister = "list_stored"

// Recount corrects the connections in flight of all backends by what promises and
// flows there are, and returns how many corrections that took.
func (d *Datapath) Recount() (corrected int, err error) {
	lister, err := d.storedLister()
	if err != nil {
		return 0, err
	}
	if lister != nil {
		defer lister.Close()
	}
	backends := d.maps.backends
	off := make([]int32, backends.len)
	for round := range recounts {
		if err := d.compare(off, round == 0, lister); err != nil {
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
func (d *Datapath) compare(off []int32, first bool, lister *link.Iter) error {
	backends := d.maps.backends
	before := make([]int32, backends.len)
	for id := range backends.len {
		before[id] = atomic.LoadInt32(&backends.at(id).InFlight)
	}
	counted, err := d.census(lister)
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

// census counts the promises and flows of every backend.
func (d *Datapath) census(lister *link.Iter) ([]int32, error) {
	out := make([]int32, d.maps.backends.len)
	slots, err := newMapping[headgatePromiseSlot](d.maps.byName["promises"], false)
	if err != nil {
		return nil, err
	}
	defer slots.Close()
	for i := range slots.len {
		if s := slots.at(i); s.Owner != 0 {
			d.countPromise(out, s.Promise)
		}
	}
	if err := d.countStored(out, lister); err != nil {
		return nil, err
	}
	return out, d.countFlows(out)
}

func (d *Datapath) countPromise(out []int32, p headgatePromise) {
	if id := p.BackendId; id != 0 && id < uint32(len(out)) && d.maps.backends.at(id).To == p.Backend {
		out[id]++
	}
}

// storedLister returns what lists the promises in socket storage, nil where there
// never was one.
func (d *Datapath) storedLister() (*link.Iter, error) {
	if n, err := d.storedPromises(); err != nil || n == 0 {
		return nil, err
	}
	o, err := newObject(d.cfg)
	if err != nil {
		return nil, err
	}
	o.resize(d.maps.sizes())
	for name := range o.spec.Programs {
		if name != storedLister {
			delete(o.spec.Programs, name)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(o.spec, ebpf.CollectionOptions{MapReplacements: d.maps.byName})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", storedLister, err)
	}
	defer c.Close()
	it, err := link.AttachIter(link.IterOptions{Program: c.Programs[storedLister], Map: d.maps.byName["stored_promises"]})
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", storedLister, err)
	}
	return it, nil
}

func (d *Datapath) countStored(out []int32, lister *link.Iter) error {
	if lister == nil {
		return nil
	}
	r, err := lister.Open()
	if err != nil {
		return fmt.Errorf("open an iterator of socket storage: %w", err)
	}
	defer r.Close()
	var stored headgateStoredPromises
	buffer := unsafe.Slice((*byte)(unsafe.Pointer(&stored)), unsafe.Sizeof(stored))
	for {
		switch _, err := io.ReadFull(r, buffer); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("list the promises in socket storage: %w", err)
		}
		for _, p := range stored.Promise {
			d.countPromise(out, p)
		}
	}
}

// countFlows counts the flows of packets. A flow of datagrams that has been silent
// for too long is over, though its entry is there.
func (d *Datapath) countFlows(out []int32) error {
	now, err := coarseClock()
	if err != nil {
		return err
	}
	const batch = 4096
	flows := d.maps.byName["conntrack"]
	keys, values := make([]headgateTuple, batch), make([]headgateFlow, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := flows.BatchLookup(&cursor, keys, values, nil)
		for i := range values[:n] {
			d.countFlow(out, &values[i], now)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the flows: %w", err)
		}
	}
}

// coarseClock returns what bpf_ktime_get_coarse_ns does.
func coarseClock() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now.Nano(), nil
}

// udpFlowTimeout is udp_flow_timeout_s.
const udpFlowTimeout = 180 * time.Second

func (d *Datapath) countFlow(out []int32, f *headgateFlow, now int64) {
	id := f.BackendId
	if f.Flags&headgateFlowFlagFLOW_COUNTED == 0 || id == 0 || id >= uint32(len(out)) {
		return
	}
	to := d.maps.backends.at(id).To
	silent := time.Duration(now - int64(f.LastSeenNs))
	if to.Addr == f.To.Dst && to.Port == f.To.DstPort && (f.To.Protocol == uint8(lb.TCP) || silent <= udpFlowTimeout) {
		out[id]++
	}
}
