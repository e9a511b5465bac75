package datapath

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Connections in flight are counted as they come and go. What nobody sees, such as
// a flow that made room for others or what happened while maps were replaced, is
// corrected here, without a stop: what there is is counted several times over, and
// only as much as every count says in the same direction is added or taken away.
// What comes and goes meanwhile points now this way, now the other. Where the first count
// finds everything right there is no other one.

// recounts is how often everything is counted for one correction.
const recounts = 3

// census keeps from one recount to the next what it needs. The zero value keeps nothing.
type census struct {
	mu              sync.Mutex  // held while connections are counted, and while maps are replaced
	leave           atomic.Bool // whoever counts is to come to an end
	counted, before []int32     // by backend
	backends        backendMap  // while connections are counted
	payload         round

	// Maps in which no connection was found, and what they had counted before that.
	none *mapSet
	seen headgateCounters

	taken lastTaking // of the traffic of flows

	silentIn *mapSet // the maps in which connections are silent
	silent   silence
}

// errLeft says that a count did not come to its end, since maps are to be replaced.
var errLeft = errors.New("maps are replaced")

// stop ends a count, and has no other begin until resume is called.
func (c *census) stop() (resume func()) {
	c.leave.Store(true)
	c.mu.Lock()
	c.leave.Store(false)
	return c.mu.Unlock
}

// Recount corrects the connections in flight of all backends by what socket NAT entries and
// flows there are, and returns how many corrections that took. It frees the slots of
// sockets that are gone, too, which takes several calls, flows that are silent for long, and
// ways of flows that a command which was killed had made busy, and adds what sockets have sent
// and received that live long.
// It may be called while other calls are under way, but not twice at a time. One that replaces
// the maps ends it early.
func (d *Datapath) Recount() (corrected int, err error) {
	c := &d.census
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, err := d.maps.counters()
	if err != nil || c.none == d.maps && c.seen == seen {
		return 0, err // there was no connection, and none has come
	}
	if c.backends, err = d.maps.allBackends(true); err != nil {
		return 0, err
	}
	defer c.backends.Close()
	err = errors.Join(d.freeStale(), d.freeAbandonedFlows(), d.countPayload())
	corrected, some, errCount := d.recount()
	if c.none = nil; !some && d.stale.found == nil {
		c.none, c.seen = d.maps, seen
	}
	return corrected, errors.Join(err, errCount)
}

// recount corrects, and says whether there was any connection.
func (d *Datapath) recount() (corrected int, some bool, err error) {
	t, err := d.openTally()
	if err != nil {
		return 0, true, err
	}
	defer t.Close()
	off, err := t.compareAll(numbers(&d.census.before, d.maps))
	for left := recounts - 1; err == nil && left > 0 && len(off) > 0; left-- {
		off, err = t.compare(off)
	}
	switch {
	case errors.Is(err, errLeft):
		return 0, true, nil
	case err != nil:
		return 0, true, err
	}
	for _, o := range off {
		if b := t.backends.at(o.id); b.To == o.to {
			addInFlight(&b.InFlight, o.by)
			corrected++
		}
	}
	return corrected, t.some, nil
}

// numbers returns one for each backend, in the place of those of an earlier time.
func numbers(kept *[]int32, s *mapSet) []int32 {
	if n := int(s.backends.len); len(*kept) != n {
		*kept = make([]int32, n)
	}
	return *kept
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

// astray is a backend whose number of connections is off by so many.
type astray struct {
	id     uint32
	to     headgateAddrPort
	by     int32
	before int32 // the number before the last count
}

// compareAll counts everything once and returns the backends of which something else is
// counted than they say.
func (t *tally) compareAll(before []int32) (off []astray, err error) {
	for id := range t.backends.len {
		before[id] = t.inFlight(id)
	}
	if err := t.count(); err != nil {
		return nil, err
	}
	for id := range t.backends.len {
		if by := nearest(t.between(id, before[id])); by != 0 {
			off = append(off, astray{id: id, to: t.backends.at(id).To, by: by})
		}
	}
	return off, nil
}

// compare counts everything once more, and brings what is off nearer to zero where what is
// counted differs by less from what the backends say.
func (t *tally) compare(off []astray) (still []astray, err error) {
	for i := range off {
		off[i].before = t.inFlight(off[i].id)
	}
	if err := t.count(); err != nil {
		return nil, err
	}
	for _, o := range off {
		by := nearest(t.between(o.id, o.before))
		if o.by = nearest(min(o.by, by), max(o.by, by)); o.by != 0 {
			still = append(still, o)
		}
	}
	return still, nil
}

// between returns what is counted of a backend beyond what it says now, or said before, the
// lower number first.
func (t *tally) between(id uint32, before int32) (low, high int32) {
	after, counted := t.inFlight(id), t.counted[id]
	return counted - max(before, after), counted - min(before, after)
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
