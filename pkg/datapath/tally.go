package datapath

import (
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tally counts the connections of every backend: the socket NAT entries and flows.
type tally struct {
	backends backendMap
	slots    *mapping[headgateSocketSlot]
	flows    *flowTable
	stored   iterators // through what sockets keep themselves
	silent   *silence
	counted  []int32 // by backend
	some     bool    // there is a connection at all
	leave    *atomic.Bool
}

// storedListers are the programs that list entries in socket storage, and the map
// that each goes through.
var storedListers = map[string]string{"list_stored": "stored_entries", "list_many": "many_entries"}

// openTally has what is to be counted at hand.
func (d *Datapath) openTally() (t *tally, err error) {
	t = &tally{
		backends: d.census.backends, counted: numbers(&d.census.counted, d.maps), leave: &d.census.leave,
		silent: d.census.silenceOf(d.maps, d.cfg.TCPTimeout),
	}
	if t.slots, err = newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false); err != nil {
		return nil, err
	}
	if t.flows, err = openFlowTable(d.maps, true); err == nil {
		t.stored, err = d.newStoredListers()
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close lets go of it.
func (t *tally) Close() {
	t.slots.Close()
	t.stored.Close()
	if t.flows != nil {
		t.flows.Close()
	}
}

// newStoredListers returns none where nothing was ever stored.
func (d *Datapath) newStoredListers() (iterators, error) {
	if n, err := d.storedEntries(); err != nil || n == 0 {
		return nil, err
	}
	return d.newIterators(storedListers, nil)
}

// inFlight returns what a backend says.
func (t *tally) inFlight(id uint32) int32 {
	return atomic.LoadInt32(&t.backends.at(id).InFlight)
}

// countStep is how many elements are counted between two looks whether to leave.
const countStep = 4096

// leaves says at some of the elements whether to leave.
func (t *tally) leaves(element uint32) bool { return element%countStep == 0 && t.leave.Load() }

// count counts everything once, or returns errLeft.
func (t *tally) count() error {
	clear(t.counted)
	for i := range t.slots.len {
		if t.leaves(i) {
			return errLeft
		}
		if s := t.slots.at(i); s.Owner != 0 {
			t.countEntry(&s.Entry)
		}
	}
	for _, it := range t.stored {
		if err := t.countStored(it); err != nil {
			return err
		}
	}
	return t.countFlows()
}

func (t *tally) countEntry(p *headgateSocketEntry) {
	t.some = true
	if t.backends.has(p) {
		t.counted[p.BackendId]++
	}
}

// backendMap is all backends as memory.
type backendMap struct{ *mapping[headgateBackend] }

// allBackends returns them, to be closed soon.
func (s *mapSet) allBackends(writable bool) (backendMap, error) {
	m, err := s.backends.all(writable)
	return backendMap{m}, err
}

// has says whether an entry is neither retired nor of a backend that is gone.
func (m backendMap) has(p *headgateSocketEntry) bool {
	id := p.BackendId
	return id != 0 && id < m.len && m.at(id).To == p.backend()
}

// backend returns the backend of an entry without the flags in its padding.
func (p *headgateSocketEntry) backend() headgateAddrPort {
	b := p.Backend
	b.Pad = 0
	return b
}

// isWaiting says whether a connected UDP socket waits for a backend.
func (p *headgateSocketEntry) isWaiting() bool {
	frontend := p.Frontend
	frontend.Pad = 0
	return p.BackendId == 0 && p.Backend.Pad&uint8(headgateEntryFlagENTRY_CONNECTED) != 0 && frontend == p.backend()
}

// countStored counts the entries that one program lists.
func (t *tally) countStored(lister *link.Iter) error {
	it, err := lister.Open()
	if err != nil {
		return fmt.Errorf("open an iterator of socket storage: %w", err)
	}
	defer it.Close()
	var p headgateSocketEntry
	i := uint32(0)
	return eachRecord(it, bytesOf(&p), func() error {
		if t.leaves(i) {
			return errLeft
		}
		i++
		t.countEntry(&p)
		return nil
	})
}

// countFlows counts the flows of packets, and frees those that were silent for too long. A flow
// of datagrams that is silent is over before that, though it is there.
func (t *tally) countFlows() error {
	now, err := coarseClock()
	if err != nil {
		return err
	}
	used := uint32(0)
	for set := range t.flows.sets.len {
		if t.leaves(set) {
			return errLeft
		}
		if t.flows.isEmpty(set) {
			continue
		}
		used += waysInUse(t.flows.sets.at(set))
		t.flows.freeSilent(set, now, t.silent, t.backends.uncount)
		for w, f := range t.flows.flowsIn(set) {
			t.some = true
			if w.has(headgateFlowFlagFLOW_COUNTED) && t.backends.isFlowing(&f) && (f.isTCP() || t.flows.isInUse(w, &f, now)) {
				t.counted[f.Known]++
			}
		}
	}
	t.silent.full = used > t.flows.sets.len*flowWays/2
	return nil
}

// isInUse says whether a packet of either direction of a flow of datagrams came within the time-out.
func (t *flowTable) isInUse(w way, f *headgateFlow, now int64) bool {
	if w.idle(now) <= udpFlowTimeout {
		return true
	}
	reply, there := t.find(f.other())
	return there && reply.leadsTo(f) && reply.has(headgateFlowFlagFLOW_SEEN) && reply.idle(now) <= udpFlowTimeout
}

// uncount takes a flow out of what is in flight.
func (m backendMap) uncount(f *headgateFlow) {
	if m.isFlowing(f) {
		addInFlight(&m.at(f.Known).InFlight, -1)
	}
}

// isFlowing says whether the backend of a flow that is in flight is still there.
func (m backendMap) isFlowing(f *headgateFlow) bool {
	if f.Known == 0 || f.Known >= m.len {
		return false
	}
	to := m.at(f.Known).To
	return to.Addr == f.To && to.Port == f.ToDstPort
}

// coarseClock returns what bpf_ktime_get_coarse_ns does.
func coarseClock() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now.Nano(), nil
}
