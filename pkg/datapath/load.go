package datapath

import "time"

// Load is how a backend is, as far as this node knows.
type Load struct {
	InFlight uint32        `json:"in_flight"`           // connections and flows that are open
	Answer   time.Duration `json:"answer_ns,omitempty"` // answer time as last measured, at the least if nobody got one; 0: nobody asks, or none is known
	Failures uint32        `json:"failures,omitempty"`  // in a row
	// Suspect is for how long the backend has been one that is avoided, 0 where
	// it is none.
	Suspect time.Duration `json:"suspect_ns,omitempty"`
}

// answerAtLeast is in the answer time of a backend of which no more is known than how
// long it takes at the least.
const answerAtLeast = 1 << 31

// Loads returns how every backend is that a frontend knows, by ID.
func (i *Inspector) Loads() map[uint32]Load {
	out := map[uint32]Load{}
	now, _ := coarseClock() // 0 where there is none: then nobody is a suspect for long
	for id := uint32(1); id < i.maps.backends.len; id++ {
		if b := i.maps.backends.at(id); b.To.Port != 0 {
			out[id] = Load{
				InFlight: uint32(max(b.InFlight, 0)),
				Answer:   time.Duration(b.AnswerUs&^answerAtLeast) * time.Microsecond,
				Failures: b.Failures,
				Suspect:  suspectFor(b, now),
			}
		}
	}
	return out
}

// suspectFor returns for how long a backend has been a suspect: a second at least.
func suspectFor(b *headgateBackend, now int64) time.Duration {
	since := time.Duration(b.SuspectSinceS) * time.Second
	if since == 0 {
		return 0
	}
	return max(time.Duration(now)-since, time.Second)
}

// Suspects returns the backends that are suspects, by ID.
func (i *Inspector) Suspects() map[uint32]Load {
	out := map[uint32]Load{}
	for id, l := range i.Loads() {
		if l.Suspect > 0 {
			out[id] = l
		}
	}
	return out
}
