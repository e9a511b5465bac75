package netns_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// deviation is how far connections are from the shares that weights give.
type deviation struct {
	over, under float64 // connections that any backend has too many, or too few
	z           float64 // of chi-square, as a normal deviate
}

// deviationOf compares connections with weights, which are all 1 if there are none.
func deviationOf(got []int, weights []uint32) (d deviation) {
	total := float64(len(got))
	if weights != nil {
		total = 0
		for _, w := range weights {
			total += float64(w)
		}
	}
	chi2 := 0.0
	for i, n := range got {
		share := float64(sum(got)) / total
		if weights != nil {
			share *= float64(weights[i])
		}
		off := float64(n) - share
		d.over, d.under = math.Max(d.over, off), math.Max(d.under, -off)
		chi2 += off * off / share
	}
	if freedom := float64(len(got) - 1); freedom > 0 {
		// Wilson and Hilferty: the cube root is nearly normal.
		v := 2 / (9 * freedom)
		d.z = (math.Cbrt(chi2/freedom) - (1 - v)) / math.Sqrt(v)
	}
	return d
}

// spreads says how an algorithm spreads connections that all stay open. The better of
// two has hardly ever three too many, but it may be long until somebody is drawn at all:
// of a hundred with ten each, once in 150 times one has six too few.
var spreads = []struct {
	algorithm lb.Algorithm
	weighted  bool
	most      float64 // connections too many at any backend; Inf: only chi-square counts
	fewest    float64 // connections too few at any
	least     float64 // z of chi-square: below it, it would not be by chance
}{
	{lb.Random, false, math.Inf(1), math.Inf(1), -5},
	{lb.Random, true, math.Inf(1), math.Inf(1), -5},
	{lb.RR, false, 0, 0, math.Inf(-1)},
	{lb.WRR, false, 0, 0, math.Inf(-1)},
	{lb.WRR, true, 0, 0, math.Inf(-1)},
	{lb.Maglev, false, math.Inf(1), math.Inf(1), -5},
	{lb.Maglev, true, math.Inf(1), math.Inf(1), -5},
	{lb.Stable, false, math.Inf(1), math.Inf(1), -5},
	{lb.Stable, true, math.Inf(1), math.Inf(1), -5},
	{lb.LC, false, 0, 0, math.Inf(-1)},
	{lb.WLC, false, 0, 0, math.Inf(-1)},
	{lb.WLC, true, 1, 1, math.Inf(-1)},
	{lb.SED, false, 0, 0, math.Inf(-1)},
	{lb.SED, true, 1, 1, math.Inf(-1)},
	{lb.NQ, false, 0, 0, math.Inf(-1)},
	{lb.NQ, true, 1, 1, math.Inf(-1)},
	{lb.P2C, false, 5, math.Inf(1), math.Inf(-1)},
	{lb.Latency, false, 5, math.Inf(1), math.Inf(-1)},
}

// Over 1 to 100 backends, weights of 1, 2 and 3 among them, everybody gets what is
// his: exactly, or within what chance does once in millions of runs.
func TestAnyNumberOfBackendsGetsItsShares(t *testing.T) {
	n := roomyNode(t)
	for _, c := range spreads {
		sizes := []int{1, 2, 3, 10, 100}
		if c.algorithm == lb.RR {
			sizes = append(sizes, 5000) // one after the other, as always
		}
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s over %d, weighted %v", c.algorithm, size, c.weighted), func(t *testing.T) {
				var weights []uint32
				each := min(10*size, 5000)
				if c.weighted {
					each = 0
					for i := range size {
						weights = append(weights, uint32(1+i%3))
						each += 5 * (1 + i%3)
					}
				}
				if math.IsInf(c.most, 1) {
					each = max(each, 1000)
				}
				backends := silent(size)
				n.set("spread", spreadOver(c.algorithm, backends, weights...))
				sockets := connectMany(t, each)
				got := n.inFlight(backends)
				closeAll(sockets)
				n.sweep()
				d := deviationOf(got, weights)
				if sum(got) != each || d.over > c.most || d.under > c.fewest || d.z > 5 || size > 1 && d.z < c.least {
					t.Errorf("of %d connections in flight are %v: %.1f too many, %.1f too few, chi-square is %.1f deviations off", each, got, d.over, d.under, d.z)
				}
			})
		}
	}
}
