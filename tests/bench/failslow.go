package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// comparing are the algorithms that look at how backends are, beside random.
var comparing = []lb.Algorithm{lb.Random, lb.LC, lb.P2C, lb.Latency}

// slowness is how much slower one backend is than the others, and how many
// connections come. Those where comparing helps little are there on purpose.
type slowness struct {
	name, key string
	answer    time.Duration // below 0: it never answers
	fewer     int           // so many times fewer connections, for as much longer
}

const fewer = 5

var slownesses = []slowness{
	{"twice as slow", "2x", 2 * usualAnswer, 1},
	{"10 times", "10x", 10 * usualAnswer, 1},
	{"100 times, few connections", "few", slowAnswer, fewer},
	{"never answers", "hangs", -1, 1},
}

// slowBackends measures algorithms that compare with one backend that is slow, by how
// slow it is.
func (b *bench) slowBackends(pods []*pod) error {
	t := table{
		Title: fmt.Sprintf("One backend of %d that is more or less slow, by how slow it is", failPods),
		Note: fmt.Sprintf("p99 as below, all four at the same time; %d connections a second for %s in each round, few are %d for %s. Share is that of the slow one, of answers. "+
			"Failed are clients that gave up after %s. What compares connections in flight sends a backend that is n times slower the n-th part of a fair share, "+
			"so that p99 sees it by p2c and lc as long as n is less than %d, and by nothing if it is still among the usual.",
			b.plan.plightRate, b.plan.plightTime, b.plan.plightRate/fewer, b.plan.plightTime*fewer, clientTimeout, failPods),
		Header: []string{"slow backend", "algorithm", "p99", "× random", "share, %", "failed", "of"},
	}
	for _, s := range slownesses {
		pods[0].delay.Store(int64(s.answer))
		found, err := b.suffer(s.name, comparing, b.plan.plightRate/s.fewer, b.plan.plightTime*time.Duration(s.fewer))
		if err != nil {
			return err
		}
		for _, a := range comparing {
			of := found[a]
			of.add(b.report, a, s.key)
			t.row(slices.Concat([]string{s.name, a.String()}, of.cells(), []string{fmt.Sprintf("%.2f", of.share(0)), count(of.failed), count(of.all())})...)
		}
	}
	b.report.table(t)
	return nil
}

// trouble is what clients notice by an algorithm.
type trouble struct {
	p99, times []float64 // ms, and over random at the same time, of each round
	by         [failPods]int
	failed     int
}

// all is how many clients there were.
func (t *trouble) all() int {
	n := t.failed
	for _, by := range t.by {
		n += by
	}
	return n
}

// share is that of a pod of all answers, in per cent.
func (t *trouble) share(pod int) float64 {
	return 100 * float64(t.by[pod]) / float64(max(1, t.all()-t.failed))
}

func (t *trouble) note(o, random outcomes) {
	t.p99 = append(t.p99, o.p99())
	t.times = append(t.times, o.p99()/random.p99())
	t.failed += o.failed
	for i, n := range o.by {
		t.by[i] += n
	}
}

// atOnce is how many algorithms beside random have clients at the same time: what the
// machine does meanwhile meets them all.
const atOnce = 3

// suffer measures algorithms in rounds: a few at a time, always with random.
func (b *bench) suffer(name string, algorithms []lb.Algorithm, rate int, took time.Duration) (map[lb.Algorithm]*trouble, error) {
	out := map[lb.Algorithm]*trouble{}
	for _, a := range algorithms {
		out[a] = &trouble{}
	}
	others := slices.DeleteFunc(slices.Clone(algorithms), func(a lb.Algorithm) bool { return a == lb.Random })
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range b.plan.plightRounds {
		if err := b.step("%s, round %d of %d", name, round+1, b.plan.plightRounds); err != nil {
			return nil, err
		}
		rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		for set := range slices.Chunk(others, atOnce) {
			set = append([]lb.Algorithm{lb.Random}, set...)
			for i, o := range b.sufferAtOnce(set, rate, took) {
				out[set[i]].note(o[0], o[1])
			}
		}
	}
	return out, b.ctx.Err()
}

// sufferAtOnce returns what comes of algorithms at the same time, each with what came
// of the first of them.
func (b *bench) sufferAtOnce(set []lb.Algorithm, rate int, took time.Duration) [][2]outcomes {
	out := make([][2]outcomes, len(set))
	var wait sync.WaitGroup
	for i, a := range set {
		wait.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / time.Duration(rate*len(set))) // in turn
			out[i][0] = arrivals{failService(firstAlgorithmPort + uint16(a)), rate, took}.run(b.ctx)
		})
	}
	wait.Wait()
	for i := range out {
		out[i][1] = out[0][0]
	}
	return out
}

// add reports what an algorithm makes of a plight.
func (t *trouble) add(r *report, a lb.Algorithm, plight string) {
	key := "failures/" + a.String() + "/" + plight
	r.add(key+"/p99", "ms", summary(t.p99))
	r.add(key+"/times_random", "ratio", summary(t.times))
	r.value(key+"/share", "percent", t.share(0))
	r.value(key+"/failed", "", float64(t.failed))
}

// cells are those of a table: p99, and over random.
func (t *trouble) cells() []string {
	return []string{tenth(summary(t.p99).Median), fmt.Sprintf("%.2f", summary(t.times).Median)}
}
