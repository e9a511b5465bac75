package datapath

import (
	"cmp"
	"sync/atomic"
	"time"
)

// longestIdle is how long a flow may be silent, but for a connection that both sides have
// confirmed and that nobody has closed.
const longestIdle = time.Duration(headgateFlowTimeIDLE_ESTABLISHED_S) * time.Second

// usualSilence is how long such a connection may be silent where no setting says so.
const usualSilence = 24 * time.Hour

// The times of states begin anew after 4.9 hours. What is silent for longer than the first of
// these looks as if it was so for the second.
const (
	mostIdle  = 4 * time.Hour
	shownIdle = 3 * time.Hour
)

// silence is what is known of connections that are silent for longer than longestIdle.
type silence struct {
	limit time.Duration
	since map[uint32]int64 // by the index of their way
	full  bool             // more than half of the table was in use: none is kept
}

// silenceOf returns what is known of those in the maps that are in force.
func (c *census) silenceOf(s *mapSet, limit time.Duration) *silence {
	if c.silentIn != s {
		c.silentIn, c.silent = s, silence{limit: max(cmp.Or(limit, usualSilence), longestIdle), since: map[uint32]int64{}}
	}
	return &c.silent
}

// freeSilent frees the ways of a set whose flows were silent for too long, before the times of
// their states begin anew. Connections that stay are not in flight.
func (t *flowTable) freeSilent(set uint32, now int64, s *silence, uncount func(*headgateFlow)) {
	for w, f := range t.flowsIn(set) {
		idle := w.idle(now)
		if idle <= longestIdle {
			delete(s.since, w.index)
			continue
		}
		if _, known := s.since[w.index]; !known {
			s.since[w.index] = now - int64(idle)
		}
		stays := !s.full && time.Duration(now-s.since[w.index]) <= s.limit && t.isOpen(w, &f)
		if stays && !w.hold(now) || !stays && !w.own() {
			continue
		}
		if w.has(headgateFlowFlagFLOW_COUNTED) {
			uncount(&f)
		}
		if !stays {
			delete(s.since, w.index)
			w.free()
		}
	}
}

// isOpen says whether both sides have confirmed a connection, and none has closed it.
func (t *flowTable) isOpen(w way, f *headgateFlow) bool {
	other, there := t.find(f.other())
	return w.isOpen() && there && other.leadsTo(f) && other.isOpen()
}

// isOpen says so as far as one direction knows.
func (w way) isOpen() bool {
	const not = headgateFlowFlagFLOW_HALF_OPEN | headgateFlowFlagFLOW_CLOSING | headgateFlowFlagFLOW_BROKEN | headgateFlowFlagFLOW_DATAGRAMS
	return w.has(headgateFlowFlagFLOW_SEEN) && !w.has(not)
}

// hold has a silent flow stay, which is not in flight; false if its state is another by now.
func (w way) hold(now int64) bool {
	next := w.seen &^ uint32(headgateFlowFlagFLOW_COUNTED)
	if w.idle(now) > mostIdle {
		next &= 1<<headgateFlowTimeFLOW_TIME_SHIFT - 1
		next |= uint32(flowTime(uint64(now)-uint64(shownIdle))) << headgateFlowTimeFLOW_TIME_SHIFT
	}
	return next == w.seen || atomic.CompareAndSwapUint32(w.state, w.seen, next)
}
