package cli

import (
	"hash/maphash"
	"strconv"
	"time"
)

// rates tells how fast counters grow, from one reading to the next. A nil one knows no reading. There may be very
// many: of what is counted a hash is kept, which two of them do not share in the lifetime of a machine.
type rates struct {
	at, before   time.Time
	seed         maphash.Seed
	counts, were map[uint64]uint64        // by what is counted
	traffic      map[uint64]trafficCounts // the same, of those that have any
	hadTraffic   map[uint64]trafficCounts
}

// begin begins a reading.
func (r *rates) begin(now time.Time) {
	if r == nil {
		return
	}
	if r.counts == nil {
		r.seed = maphash.MakeSeed()
	}
	r.before, r.were = r.at, r.counts
	r.at, r.counts = now, make(map[uint64]uint64, len(r.were))
	r.hadTraffic, r.traffic = r.traffic, map[uint64]trafficCounts{}
}

// of returns by how much something has grown in a second, nil where that is not known: it was
// not read before, or has begun at 0 again.
func (r *rates) of(what string, count uint64) *rate {
	if r == nil {
		return nil
	}
	key := maphash.String(r.seed, what)
	r.counts[key] = count
	was, known := r.were[key]
	return r.grown(was, known, count)
}

// grown does so for who keeps himself what it was in the reading before, if that is known.
func (r *rates) grown(was uint64, known bool, count uint64) *rate {
	if !known || count < was {
		return nil
	}
	perSecond := r.perSecond(count - was)
	return &perSecond
}

// perSecond returns how many in a second so many since the reading before are.
func (r *rates) perSecond(n uint64) rate { return rate(float64(n) / r.at.Sub(r.before).Seconds()) }

// parts returns by how much the parts of a sum have grown in a second, without zeros. A part is not
// counted while it is 0: where the sum was known before, so was the part.
func (r *rates) parts(of string, counts map[string]uint64, sum *rate) (out map[string]rate) {
	for part, n := range counts {
		grown := r.of(part+" of "+of, n)
		if grown == nil && sum != nil {
			grown = new(r.perSecond(n))
		}
		if grown == nil || *grown == 0 {
			continue
		}
		if out == nil {
			out = map[string]rate{}
		}
		out[part] = *grown
	}
	return out
}

// rate is how many in a second.
type rate float64

// String shows less than ten with one decimal.
func (r rate) String() string {
	if r == 0 || r >= 10 {
		return strconv.FormatFloat(float64(r), 'f', 0, 64)
	}
	return strconv.FormatFloat(float64(r), 'f', 1, 64)
}

// cell returns a rate as columns have it.
func (r *rate) cell() any { return cellOf(r) }

// cellOf returns what is known as columns have it, nil for what is not.
func cellOf[T any](known *T) any {
	if known == nil {
		return nil
	}
	return *known
}
