package load

import "math/rand/v2"

// arrivals are the times at which the operations of one sender are due, in
// nanoseconds since the clock began.
type arrivals struct {
	next   float64 // a float: gaps need not be whole nanoseconds
	gap    float64 // mean, in nanoseconds
	random *rand.Rand
}

// newArrivals returns the share of one sender of a rate: even arrivals are
// staggered over the senders, random ones are independent.
func newArrivals(spec *Spec, sender int, begin int64) *arrivals {
	gap := 1e9 / spec.Rate
	a := &arrivals{next: float64(begin) + gap*float64(sender), gap: gap * float64(spec.Senders)}
	if spec.Poisson {
		a.random = rand.New(rand.NewPCG(spec.Seed, uint64(sender)))
		a.next = float64(begin)
		a.advance()
	}
	return a
}

// due returns when the next operation is due.
func (a *arrivals) due() int64 { return int64(a.next) }

// advance goes on to the operation after it.
func (a *arrivals) advance() {
	if a.random != nil {
		a.next += a.gap * a.random.ExpFloat64()
		return
	}
	a.next += a.gap
}
