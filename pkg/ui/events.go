package ui

import (
	"slices"
	"sort"
	"time"
)

// eventsKept is how many events are kept, and shown.
const eventsKept = 50

// event is a backend that is avoided from now on, or no more.
type event struct {
	Avoided
	ID    uint64    `json:"id"` // grows
	At    time.Time `json:"at"`
	Ended bool      `json:"ended,omitempty"` // it is avoided no more
}

// events is what has become of backends, as far as somebody looked.
type events struct {
	kept   []event // the oldest first
	before []Avoided
	last   uint64
}

// note compares who is avoided with those before.
func (e *events) note(now time.Time, avoided []Avoided) {
	in := func(all []Avoided, one Avoided) bool {
		return slices.ContainsFunc(all, func(a Avoided) bool { return a.Backend == one.Backend && a.OneClient == one.OneClient })
	}
	for _, a := range e.before {
		if !in(avoided, a) {
			e.add(event{Avoided: a, At: now, Ended: true})
		}
	}
	for _, a := range avoided {
		if !in(e.before, a) {
			e.add(event{Avoided: a, At: a.Since})
		}
	}
	e.before = avoided
}

func (e *events) add(one event) {
	e.last++
	one.ID = e.last
	e.kept = append(e.kept, one)
	e.kept = e.kept[max(0, len(e.kept)-eventsKept):]
}

// youngest returns the events, the youngest first. A backend may be avoided since before the last event.
func (e *events) youngest() []event {
	out := append([]event{}, e.kept...)
	slices.Reverse(out)
	sort.SliceStable(out, func(i, j int) bool { return out[i].At.After(out[j].At) })
	return out
}
