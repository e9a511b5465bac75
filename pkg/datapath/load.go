package datapath

import "time"

// Load is how a backend is, as far as this node knows.
type Load struct {
	InFlight uint32        `json:"in_flight"`          // connections and flows that are open
	RTT      time.Duration `json:"rtt_ns,omitempty"`   // smoothed round trip time, 0: nobody asks, or none is known
	Failures uint32        `json:"failures,omitempty"` // in a row
}

// Loads returns how every backend is that a frontend knows, by ID.
func (i *Inspector) Loads() map[uint32]Load {
	out := map[uint32]Load{}
	for id := uint32(1); id < i.maps.backends.len; id++ {
		if b := i.maps.backends.at(id); b.To.Port != 0 {
			out[id] = Load{
				InFlight: uint32(max(b.InFlight, 0)),
				RTT:      time.Duration(b.SrttUs) * time.Microsecond,
				Failures: b.Failures,
			}
		}
	}
	return out
}
