package cli

import (
	"strconv"
	"time"
)

// rates tells how fast counters grow, from one reading to the next. A nil one knows no reading.
type rates struct {
	at, before   time.Time
	counts, were map[string]uint64 // by what is counted
}

// begin begins a reading.
func (r *rates) begin(now time.Time) {
	if r == nil {
		return
	}
	r.before, r.were = r.at, r.counts
	r.at, r.counts = now, map[string]uint64{}
}

// of returns by how much something has grown in a second, nil where that is not known: it was
// not read before, or has begun at 0 again.
func (r *rates) of(what string, count uint64) *rate {
	if r == nil {
		return nil
	}
	r.counts[what] = count
	was, known := r.were[what]
	if !known || count < was {
		return nil
	}
	perSecond := rate(float64(count-was) / r.at.Sub(r.before).Seconds())
	return &perSecond
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
func (r *rate) cell() any {
	if r == nil {
		return nil
	}
	return *r
}
