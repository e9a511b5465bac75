package datapath

import (
	"iter"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Load is how a backend is, as far as this node knows.
type Load struct {
	InFlight uint32        `json:"inFlight"`             // connections and flows that are open
	Response time.Duration `json:"responseNs,omitempty"` // response time as one client measured it last; 0: no client measures, or none is known
	// ResponseAtLeast says that the response took longer: the client gave up, or measured the handshake alone.
	ResponseAtLeast bool   `json:"responseAtLeast,omitempty"`
	Failures        uint32 `json:"failures,omitempty"` // in a row
	// Connections is how many have begun with it on this node since it is a backend.
	Connections uint64 `json:"connections"`
	Traffic
	// Eject is for how long the backend has been one that all clients avoid, 0 where
	// it is none.
	Ejected time.Duration `json:"ejectedNs,omitempty"`
	// Probed says that it was a probe that made it one, and no connection since.
	Probed bool `json:"probed,omitempty"`
	// EjectedByOne is for how long one client alone has avoided the backend, by what
	// it says itself; 0 where none does.
	EjectedByOne time.Duration `json:"ejectedByOneClientNs,omitempty"`
}

// Backend is a backend with how it is.
type Backend struct {
	At lb.AddrPort
	Load
}

// Backend returns the backend with an ID, whose port is 0 where there is none.
func (r *Reader) Backend(id uint32) Backend {
	if id >= r.backends.len {
		return Backend{}
	}
	return decodeBackend(r.backends.at(id))
}

// BackendIDs returns what IDs of backends are below.
func (r *Reader) BackendIDs() uint32 { return r.backends.len }

// Backends returns all backends by ID.
func (r *Reader) Backends() iter.Seq2[uint32, Backend] {
	return func(yield func(uint32, Backend) bool) {
		for id := uint32(1); id < r.backends.len; id++ {
			if b := r.backends.at(id); b.To.Port != 0 && !yield(id, decodeBackend(b)) {
				return
			}
		}
	}
}

func decodeBackend(b *headgateBackend) Backend {
	out := Backend{At: decodeAddrPort(b.To), Load: Load{
		InFlight: uint32(max(b.InFlight, 0)),
		Failures: uint32(b.Failures), Connections: b.Connections, Traffic: decodeTraffic((*headgateTraffic)(&b.Traffic)),
	}}
	out.Response, out.ResponseAtLeast = lastResponse(b)
	switch b.Ejection {
	case headgateEjectionEJECTION_NONE:
	case headgateEjectionEJECTION_ONE:
		out.EjectedByOne = ejectedFor(b)
	default:
		out.Ejected, out.Probed = ejectedFor(b), b.FailedBy == 0
	}
	return out
}

// lastResponse returns the response time that a client measured last, and whether it is a lower bound.
func lastResponse(b *headgateBackend) (last time.Duration, atLeast bool) {
	if b.Responses == [len(b.Responses)]uint64{} {
		return 0, false
	}
	const us, ticks = 1<<headgateResponseWordRESPONSE_US_BITS - 1, 1<<headgateResponseWordRESPONSE_TICK_BITS - 1
	now, _ := coarseClock()
	tick, youngest := uint64(now>>headgateResponseWordRESPONSE_NS_SHIFT), uint64(ticks)
	for _, word := range b.Responses {
		if age := (tick - word>>headgateResponseWordRESPONSE_TICK_SHIFT) & ticks; word != 0 && age <= youngest {
			last, youngest = time.Duration(word&us)*time.Microsecond, age
			atLeast = word&us == us || word&uint64(headgateResponseWordRESPONSE_AT_LEAST) != 0
		}
	}
	return last, atLeast
}

// ejectedFor returns for how long a backend has been ejected: a second at least.
func ejectedFor(b *headgateBackend) time.Duration {
	now, _ := coarseClock() // 0 where there is none: then nobody is ejected for long
	return max(time.Duration(now)-time.Duration(b.EjectedSinceS)*time.Second, time.Second)
}

// Ejected finds the backends that all clients avoid, again and again. While no backend
// is ejected, it looks at the counters and at those it found before, and at no
// others. The zero value has found none.
type Ejected struct {
	made uint64 // how many had been ejected when all backends were looked at
	ids  []uint32
}

// Find returns their IDs in order.
func (s *Ejected) Find(r *Reader) ([]uint32, error) {
	counted, err := r.maps.counters()
	if err != nil {
		return nil, err
	}
	if counted.BackendEjected == s.made {
		s.ids = slices.DeleteFunc(s.ids, func(id uint32) bool { return r.Backend(id).Ejected == 0 })
		return slices.Clone(s.ids), nil
	}
	s.made, s.ids = counted.BackendEjected, nil
	for id, b := range r.Backends() {
		if b.Ejected > 0 {
			s.ids = append(s.ids, id)
		}
	}
	return slices.Clone(s.ids), nil
}
