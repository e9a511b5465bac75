package result

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is an estimate and the bounds that it lies in with a confidence of
// 95 %.
type Interval struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// Confidence is that of every Interval.
const Confidence = 0.95

// resamples is how many samples a bootstrap draws. With 2,000 the bounds stand
// on 50 draws each.
const resamples = 2000

// minRounds is how many rounds a bootstrap needs: below, what the rounds do not
// show of the spread is more than what they do.
const minRounds = 3

// Excludes says that a value is not within the bounds.
func (i Interval) Excludes(value float64) bool { return value < i.Low || value > i.High }

// Median returns the middle of values, 0 of none.
func Median(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), 0.5) }

// Quartiles returns the first and the third quartile of values, 0 of none.
func Quartiles(values []float64) (first, third float64) {
	sorted := slices.Sorted(slices.Values(values))
	return quantile(sorted, 0.25), quantile(sorted, 0.75)
}

// quantile returns the value at a share from the start of sorted values,
// between neighbours in proportion.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := share * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// RatioOfMedians returns how many times as large the median of b is as that of
// a, for values that were measured independently: each side is drawn anew from
// its own rounds, with replacement (Efron's percentile bootstrap).
func RatioOfMedians(a, b []float64) Interval {
	random := newRandom()
	drawnA, drawnB := make([]float64, len(a)), make([]float64, len(b))
	return bootstrap(ratio(Median(a), Median(b)), func() float64 {
		draw(random, drawnA, a)
		draw(random, drawnB, b)
		return ratio(medianOf(drawnA), medianOf(drawnB))
	})
}

// MedianOfRatios returns how many times as large b is as a, for values that
// were measured in pairs, one of each in a round: what disturbed a round met
// both, so rounds are drawn as pairs.
func MedianOfRatios(a, b []float64) Interval {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = ratio(a[i], b[i])
	}
	random := newRandom()
	drawn := make([]float64, len(ratios))
	return bootstrap(Median(ratios), func() float64 {
		draw(random, drawn, ratios)
		return medianOf(drawn)
	})
}

// newRandom has a fixed seed: the same results give the same interval.
func newRandom() *rand.Rand { return rand.New(rand.NewPCG(20, 95)) }

func draw(random *rand.Rand, into, from []float64) {
	for i := range into {
		into[i] = from[random.IntN(len(from))]
	}
}

// medianOf sorts the values.
func medianOf(values []float64) float64 {
	slices.Sort(values)
	return quantile(values, 0.5)
}

// ratio is b by a: 1 for two zeros, infinite if only a is 0.
func ratio(a, b float64) float64 {
	if a == b {
		return 1
	}
	return b / a
}

func bootstrap(estimate float64, once func() float64) Interval {
	drawn := make([]float64, resamples)
	for i := range drawn {
		drawn[i] = once()
	}
	slices.Sort(drawn)
	const tail = (1 - Confidence) / 2
	return Interval{Estimate: estimate, Low: at(drawn, tail), High: at(drawn, 1-tail)}
}

// at is the value at a share from the start, without a mean of neighbours: some
// may be infinite.
func at(sorted []float64, share float64) float64 {
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}

// z is how many standard deviations hold 95 % of a normal distribution.
const z = 1.959964

// PercentileInterval returns a percentile of a single run, p from 0 to 100, with
// bounds from order statistics: how many of n independent operations are faster
// than the true percentile is binomial, which is nearly normal. Operations of
// one run share their disturbances, so the bounds are rather too narrow, and
// say nothing of how runs differ. The upper bound is infinite if too few
// operations are beyond the percentile.
func (h *Histogram) PercentileInterval(p float64) Interval {
	n := float64(h.Count())
	if n == 0 {
		return Interval{}
	}
	share := p / 100
	half := z * math.Sqrt(share*(1-share)/n)
	i := Interval{Estimate: float64(h.Percentile(p)), Low: float64(h.Min()), High: math.Inf(1)}
	if share > half {
		i.Low = float64(h.Percentile(100 * (share - half)))
	}
	if share+half <= 1 {
		i.High = float64(h.Percentile(100 * (share + half)))
	}
	return i
}
