package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/headgate/headgate/pkg/traffic"
)

// A kase is one thing that is measured among others.
type kase struct {
	name  string
	group *group // the process enters it before each batch; nil: it need not
	// in is the network namespace whose thread makes the calls; nil: this one.
	in *traffic.Namespace
	n  int // calls in a batch
	op op

	calls int // made so far
	// Of each round's batch, in ns.
	typical []float64 // mean of the half of the calls in the middle
	mean    []float64 // mean without the slowest hundredth
	p99     []float64
}

// stat is the median of rounds with the quartiles and the least.
type stat struct {
	Median float64 `json:"median"`
	Low    float64 `json:"q1"`
	High   float64 `json:"q3"`
	Least  float64 `json:"least"`
}

// interleave measures the cases in rounds: each round has a batch of each case,
// in an order of its own, so that whatever else goes on meets all of them.
func (b *bench) interleave(what string, cases []*kase, rounds int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	rng := rand.New(rand.NewPCG(3, 4))
	if !b.onTTY {
		if err := b.step("%s, %d cases", what, len(cases)); err != nil {
			return err
		}
	}
	for round := range rounds {
		b.progress(fmt.Sprintf("%s, round %d of %d", what, round+1, rounds))
		for _, i := range rng.Perm(len(cases)) {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			if err := b.batchWhere(cases[i]); err != nil {
				return fmt.Errorf("%s: %s: %w", what, cases[i].name, err)
			}
		}
	}
	return nil
}

// batchWhere measures one case once, on the thread that it is for.
func (b *bench) batchWhere(k *kase) error {
	if k.in == nil {
		return b.batch(k)
	}
	return k.in.Do(func() error { return b.batch(k) })
}

// batch measures one case once. What comes first only warms up.
func (b *bench) batch(k *kase) error {
	if k.group != nil {
		if err := b.enter(k.group); err != nil {
			return err
		}
	}
	samples := make([]int64, k.n)
	for i := -k.n / 10; i < k.n; i++ {
		ns, err := k.op(k.calls)
		if err != nil {
			return err
		}
		k.calls++
		if i >= 0 {
			samples[i] = ns - clockCost
		}
	}
	k.p99 = append(k.p99, percentile(samples, 0.99)) // sorts them
	k.typical = append(k.typical, mean(samples[k.n/4:k.n-k.n/4]))
	k.mean = append(k.mean, mean(samples[:k.n-k.n/100]))
	return nil
}

func mean(samples []int64) float64 {
	var sum int64
	for _, s := range samples {
		sum += s
	}
	return float64(sum) / float64(len(samples))
}

// percentile sorts the samples and returns the one at a share from the start.
func percentile(samples []int64, share float64) float64 {
	slices.Sort(samples)
	return float64(samples[min(int(share*float64(len(samples))), len(samples)-1)])
}

// summary returns the median and the quartiles of rounds.
func summary(rounds []float64) stat {
	s := slices.Sorted(slices.Values(rounds))
	if len(s) == 0 {
		return stat{}
	}
	at := func(share float64) float64 {
		x := share * float64(len(s)-1)
		i := int(x)
		if i+1 == len(s) {
			return s[i]
		}
		return s[i] + (x-float64(i))*(s[i+1]-s[i])
	}
	return stat{at(0.5), at(0.25), at(0.75), s[0]}
}

// added is by how much one case is slower than another, round by round.
func added(of, over []float64) stat {
	return summary(roundByRound(of, over, func(a, b float64) float64 { return a - b }))
}

// ratio is how many times as slow as another one case is, round by round.
func ratio(of, over []float64) stat {
	return summary(roundByRound(of, over, divide))
}

func divide(a, b float64) float64 { return a / b }

func roundByRound(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = f(a[i], b[i])
	}
	return out
}
