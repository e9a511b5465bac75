package result

import "math"

// Fairness says how even the choices among backends were.
type Fairness struct {
	Backends    int     `json:"backends"`
	Choices     uint64  `json:"choices"`
	MaxOverMean float64 `json:"max_over_mean"`
	// ChiSquare is Pearson's statistic against equal shares, with
	// Backends - 1 degrees of freedom.
	ChiSquare float64 `json:"chi_square"`
	// P is the probability that independent random choices among equals are
	// at least as uneven. Near 0: the choices are skewed. Near 1: they are
	// more even than chance, as by turns. It is a good approximation from
	// about five choices for each backend on.
	P float64 `json:"p"`
}

// NewFairness returns how even choices are, one count for each backend: those
// that nobody chose must be among them. It returns nil if there are no
// choices.
func NewFairness(choices []uint64) *Fairness {
	f := &Fairness{Backends: len(choices)}
	most := uint64(0)
	for _, n := range choices {
		f.Choices += n
		most = max(most, n)
	}
	if f.Choices == 0 {
		return nil
	}
	mean := float64(f.Choices) / float64(f.Backends)
	f.MaxOverMean = float64(most) / mean
	for _, n := range choices {
		f.ChiSquare += (float64(n) - mean) * (float64(n) - mean) / mean
	}
	f.P = 1
	if f.Backends > 1 {
		f.P = upperGamma(float64(f.Backends-1)/2, f.ChiSquare/2)
	}
	return f
}

// gammaSteps bounds the iterations below. Both converge in about the square
// root of a steps near x = a, where they take longest.
const gammaSteps = 10_000

// upperGamma returns the regularised upper incomplete gamma function Q(a, x)
// for a > 0, x >= 0: by the series of its complement where x is small, else by
// its continued fraction (Abramowitz and Stegun, 6.5.29 and 6.5.31).
func upperGamma(a, x float64) float64 {
	if x <= 0 {
		return 1
	}
	logGamma, _ := math.Lgamma(a)
	front := math.Exp(a*math.Log(x) - x - logGamma)
	if x < a+1 {
		return min(max(1-front*lowerSeries(a, x), 0), 1)
	}
	return min(max(front*upperFraction(a, x), 0), 1)
}

func lowerSeries(a, x float64) float64 {
	term := 1 / a
	sum := term
	for n := 1.0; n < gammaSteps && term > sum*1e-16; n++ {
		term *= x / (a + n)
		sum += term
	}
	return sum
}

// upperFraction evaluates the fraction from the front, keeping the ratios of
// successive numerators and denominators.
func upperFraction(a, x float64) float64 {
	const tiny = 1e-300 // instead of a denominator of zero
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	value := d
	for n := 1.0; n < gammaSteps; n++ {
		an := n * (a - n)
		b += 2
		d = 1 / awayFromZero(an*d+b, tiny)
		c = awayFromZero(b+an/c, tiny)
		step := c * d
		value *= step
		if math.Abs(step-1) < 1e-15 {
			break
		}
	}
	return value
}

func awayFromZero(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}
