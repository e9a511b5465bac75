package datapath

import (
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Packets of flows are counted beside their ways (bpf/flow/traffic.h). Here what has come there is taken
// to the sums of Service ports and backends, which the kernel keeps: they outlive agents. What nobody
// has taken yet outlives them, too, while the flow table stays as large as it is.

// flowTrafficMap is the map that they are counted in, by set of the flow table.
const flowTrafficMap = "flow_traffic"

// trafficSets returns how many sets of flows have their packets counted.
func (c Config) trafficSets() uint32 {
	if !c.Traffic {
		return 1
	}
	return flowSets(c.Flows)
}

// flowSum is what the packets of flows were, each way.
type flowSum struct {
	packets, bytes [headgateDirectionDIRECTIONS]uint64
}

// add adds a difference of two words of flow_traffic.
func (s *flowSum) add(direction headgateDirection, came uint64) {
	s.packets[direction] += came >> headgatePacketCountPACKET_COUNT_SHIFT
	s.bytes[direction] += came & (1<<headgatePacketCountPACKET_COUNT_SHIFT - 1)
}

// addTo adds the sums to what the kernel has. Programs add to it at the same time.
func (s *flowSum) addTo(t *headgateTraffic) {
	for d := range s.packets {
		atomic.AddUint64(&t.Packets[d], s.packets[d])
		atomic.AddUint64(&t.Bytes[d], s.bytes[d])
	}
}

// flowBackend is a backend as a flow knows it: its ID may have become another one's.
type flowBackend struct {
	id uint32
	to headgateAddrPort
}

// flowTraffic is what it takes to take what was counted.
type flowTraffic struct {
	maps     *mapSet
	flows    *flowTable
	counts   *mapping[headgateFlowTraffic]
	services map[uint32]*flowSum // by ID
	backends map[flowBackend]*flowSum
}

// TakeTraffic adds what the packets of flows were since it was called last to the sums of their Service
// ports and backends. It may be called while other calls are under way, but not twice at a time. One
// that replaces the maps ends it early. With 2,000 flows that had packets it takes about 1.5 ms where there is
// room for 65,536 directions and 11 ms where there is for a million, mostly to map the table, and 0.03 ms where no packet has come.
func (d *Datapath) TakeTraffic() error { return d.takeTraffic(false) }

// TakeTrafficInTurn does so if that costs little beside what the node does else, see lastTaking.isDue.
func (d *Datapath) TakeTrafficInTurn() error { return d.takeTraffic(true) }

func (d *Datapath) takeTraffic(inTurn bool) error {
	c := &d.census
	c.mu.Lock()
	defer c.mu.Unlock()
	if !d.cfg.Traffic || d.maps.byName[flowTrafficMap] == nil {
		return nil
	}
	seen, err := d.maps.counters()
	packets, now := seen.FlowPacket+seen.FlowMade, time.Now()
	if err != nil || c.taken.from == d.maps && c.taken.packets == packets {
		return err // none has come
	}
	if inTurn && !c.taken.isDue(now, packets) {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	t, err := openFlowTraffic(d.maps)
	if err != nil {
		return err
	}
	whole := t.take(&c.leave)
	err = t.add() // also what it had when it was to leave
	t.close()
	if whole {
		c.taken = lastTaking{from: d.maps, packets: packets, at: now, cost: threadTime() - began}
	}
	return err
}

// lastTaking is when traffic was taken last. The zero value is never.
type lastTaking struct {
	from    *mapSet
	packets uint64 // of flows, as they were counted before that
	at      time.Time
	cost    time.Duration // of CPU time
}

// What taking may cost: one part of so many of a core at rest, and where traffic is to be seen, which is from so
// many packets a second on.
const (
	shareAtRest   = 1000
	shareUnderWay = 100
	underWay      = 1000
)

// isDue says whether traffic is to be taken again, so many packets having come.
func (l *lastTaking) isDue(now time.Time, packets uint64) bool {
	passed, share := now.Sub(l.at), time.Duration(shareAtRest)
	if float64(packets-l.packets) >= underWay*passed.Seconds() {
		share = shareUnderWay
	}
	return passed >= share*l.cost
}

// threadTime returns the CPU time of the calling thread so far, 0 where the kernel does not tell.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func openFlowTraffic(s *mapSet) (t *flowTraffic, err error) {
	t = &flowTraffic{maps: s, services: map[uint32]*flowSum{}, backends: map[flowBackend]*flowSum{}}
	if t.counts, err = newMapping[headgateFlowTraffic](s.byName[flowTrafficMap], true); err != nil {
		return nil, err
	}
	if t.flows, err = openFlowTable(s, false); err != nil {
		t.counts.Close()
		return nil, err
	}
	return t, nil
}

func (t *flowTraffic) close() {
	t.counts.Close()
	t.flows.Close()
}

// take takes what has come to all ways; false if it was to leave.
func (t *flowTraffic) take(leave *atomic.Bool) bool {
	for set := range min(t.counts.len, t.flows.sets.len) {
		if set%countStep == 0 && leave.Load() {
			return false
		}
		c := t.counts.at(set)
		for i := range flowWays {
			if atomic.LoadUint64(&c.Counted[i]) != atomic.LoadUint64(&c.Taken[i]) {
				t.takeWay(t.flows.at(set*flowWays+i), &c.Counted[i], &c.Taken[i])
			}
		}
	}
	return true
}

// lateStore is how far a word may seem to have gone back: a CPU stored what it had read before another
// one counted.
const lateStore = 1024 << headgatePacketCountPACKET_COUNT_SHIFT

// takeWay takes what has come to one way, unless that is another flow's meanwhile.
func (t *flowTraffic) takeWay(w way, counted, taken *uint64) {
	had, has := atomic.LoadUint64(taken), atomic.LoadUint64(counted)
	f, ok := w.read()
	if !ok || had-has <= lateStore || !atomic.CompareAndSwapUint64(taken, had, has) {
		return
	}
	switch {
	case w.has(headgateFlowFlagFLOW_TO_BACKEND):
		t.addWay(headgateDirectionTO_BACKEND, has-had, frontendOf(&f), &f)
	case w.has(headgateFlowFlagFLOW_REPLY):
		t.addReply(has-had, &f)
	default: // of a reply from another node, which was repeated where it came
		out := keyOut(&f)
		if reply, there := t.flows.find(&out); there && reply.has(headgateFlowFlagFLOW_REPLY) {
			t.addReply(has-had, reply.flow)
		}
	}
}

// keyOut returns the key with which packets of a flow leave that came in.
func keyOut(f *headgateFlow) headgateFlow {
	to := f.becomes()
	return headgateFlow{Src: to.Src, Dst: to.Dst, SrcPort: to.SrcPort, DstPort: to.DstPort, Protocol: f.Protocol, Hook: uint8(headgateHookHOOK_OUT)}
}

// addReply adds what has come to a reply direction.
func (t *flowTraffic) addReply(came uint64, f *headgateFlow) {
	var original *headgateFlow
	if o, there := t.flows.find(f.other()); there && o.leadsTo(f) {
		original = o.flow
	}
	t.addWay(headgateDirectionFROM_BACKEND, came, headgateAddrPort{Addr: f.To, Port: f.ToSrcPort, Protocol: f.Protocol}, original)
}

// frontendOf returns the address that the client of a flow has named, given its original direction.
func frontendOf(f *headgateFlow) headgateAddrPort {
	return headgateAddrPort{Addr: f.Dst, Port: f.DstPort, Protocol: f.Protocol}
}

// addWay adds what has come to a flow at a frontend, given its original direction, or nil where
// that has made room for another: then no backend is known.
func (t *flowTraffic) addWay(direction headgateDirection, came uint64, frontend headgateAddrPort, original *headgateFlow) {
	if id := t.maps.serviceAt(frontend); id != 0 {
		sumOf(t.services, id).add(direction, came)
	}
	if original != nil && original.Known != 0 {
		to := headgateAddrPort{Addr: original.To, Port: original.ToDstPort, Protocol: original.Protocol}
		sumOf(t.backends, flowBackend{original.Known, to}).add(direction, came)
	}
}

// sumOf returns the sum with a key, a new one where there is none.
func sumOf[K comparable](all map[K]*flowSum, key K) *flowSum {
	if all[key] == nil {
		all[key] = &flowSum{}
	}
	return all[key]
}

// serviceAt returns the Service of the frontend at an address, which may be one of the node; 0 for none.
func (s *mapSet) serviceAt(at headgateAddrPort) uint32 {
	place, there := s.findFrontend(at)
	if !there {
		any := netip.IPv6Unspecified()
		if decodeAddr(at.Addr).Is4() {
			any = netip.IPv4Unspecified()
		}
		at.Addr = encodeAddr(any)
		place, there = s.findFrontend(at)
	}
	if !there {
		return 0
	}
	return s.frontends.at(place).Service
}

// add adds all that was taken, in the order of IDs, since little of the maps is memory at a time.
func (t *flowTraffic) add() error {
	return errors.Join(t.addServices(), t.addBackends())
}

func (t *flowTraffic) addServices() error {
	all, err := newSeldom[headgateService](t.maps.services.m)
	if err != nil {
		return err
	}
	defer all.Close()
	for _, id := range slices.Sorted(maps.Keys(t.services)) {
		if id >= all.len {
			continue
		}
		s, err := all.at(id)
		if err != nil {
			return err
		}
		t.services[id].addTo((*headgateTraffic)(&s.Traffic))
	}
	return nil
}

func (t *flowTraffic) addBackends() error {
	all, err := newSeldom[headgateBackend](t.maps.backends.m)
	if err != nil {
		return err
	}
	defer all.Close()
	byID := func(a, b flowBackend) int { return int(int64(a.id) - int64(b.id)) }
	for _, key := range slices.SortedFunc(maps.Keys(t.backends), byID) {
		if key.id >= all.len {
			continue
		}
		b, err := all.at(key.id)
		if err != nil {
			return err
		}
		if b.To.Addr == key.to.Addr && b.To.Port == key.to.Port {
			t.backends[key].addTo((*headgateTraffic)(&b.Traffic))
		}
	}
	return nil
}
