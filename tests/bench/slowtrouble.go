package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// comparing are the algorithms that look at how backends are, beside random.
var comparing = []lb.Algorithm{lb.Random, lb.LC, lb.P2C, lb.Latency}

// slowness is how much slower one backend is than the others, and how many
// connections come. Those where comparing helps little are there on purpose.
type slowness struct {
	name, key string
	faults    serve.Faults
	fewer     int // so many times fewer connections, for as much longer
}

const fewer = 5

var slownesses = []slowness{
	{"twice as slow", "2x", serve.Faults{Delay: 2 * usualAnswer}, 1},
	{"10 times", "10x", serve.Faults{Delay: 10 * usualAnswer}, 1},
	{"100 times, few connections", "few", serve.Faults{Delay: slowAnswer}, fewer},
	{"never answers", "hangs", serve.Faults{DropEvery: 1}, 1},
}

// slowBackends measures algorithms that compare with one backend that is slow, by how
// slow it is.
func (b *bench) slowBackends(all servers) error {
	t := table{
		Title: fmt.Sprintf("One backend of %d that is more or less slow, by how slow it is", slowServers),
		Note: fmt.Sprintf("p99 as below, all four at the same time; %d connections a second for %s in each round, few are %d for %s. Share is that of the slow one, of answers. "+
			"Failed are clients that gave up after %s. What compares connections in flight sends a backend that is n times slower the n-th part of a fair share, "+
			"so that p99 sees it by p2c and lc as long as n is less than %d, and by nothing if it is still among the usual.",
			b.plan.slowRate, b.plan.slowTime, b.plan.slowRate/fewer, b.plan.slowTime*fewer, clientTimeout, slowServers),
		Header: []string{"slow backend", "algorithm", "p99", "× random", "share, %", "failed", "of"},
	}
	for _, s := range slownesses {
		all[0].SetFaults(s.faults)
		found, err := b.suffer(s.name, comparing, b.plan.slowRate/s.fewer, b.plan.slowTime*time.Duration(s.fewer))
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
	p99, times []float64      // ms, and over random at the same time, of each round
	by         map[string]int // answers
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

// share is that of a server of all answers, in per cent.
func (t *trouble) share(server int) float64 {
	return 100 * float64(t.by[serverName(server)]) / float64(max(1, t.all()-t.failed))
}

func (t *trouble) note(run, random result.Run) {
	t.p99 = append(t.p99, p99(run))
	t.times = append(t.times, p99(run)/p99(random))
	t.failed += int(run.Failed)
	for name, n := range run.Answers() {
		t.by[name] += int(n)
	}
}

// p99 is in ms, of the connections that were answered.
func p99(run result.Run) float64 { return ms(run.Latency.Percentile(99)) }

// atOnce is how many algorithms beside random have clients at the same time: what the
// machine does meanwhile meets them all.
const atOnce = 3

// suffer measures algorithms in rounds: a few at a time, always with random.
func (b *bench) suffer(name string, algorithms []lb.Algorithm, rate int, took time.Duration) (map[lb.Algorithm]*trouble, error) {
	out := map[lb.Algorithm]*trouble{}
	for _, a := range algorithms {
		out[a] = &trouble{by: map[string]int{}}
	}
	others := slices.DeleteFunc(slices.Clone(algorithms), func(a lb.Algorithm) bool { return a == lb.Random })
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range b.plan.slowRounds {
		if err := b.step("%s, round %d of %d", name, round+1, b.plan.slowRounds); err != nil {
			return nil, err
		}
		rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		for set := range slices.Chunk(others, atOnce) {
			set = append([]lb.Algorithm{lb.Random}, set...)
			runs, err := b.sufferAtOnce(set, rate, took)
			if err != nil {
				return nil, err
			}
			for i, run := range runs {
				out[set[i]].note(run, runs[0])
			}
		}
	}
	return out, b.ctx.Err()
}

// sufferAtOnce returns what comes of algorithms at the same time.
func (b *bench) sufferAtOnce(set []lb.Algorithm, rate int, took time.Duration) ([]result.Run, error) {
	runs, errs := make([]result.Run, len(set)), make([]error, len(set))
	var wait sync.WaitGroup
	for i, a := range set {
		wait.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / time.Duration(rate*len(set))) // in turn
			runs[i], errs[i] = b.connectAt(a, rate, took)
		})
	}
	wait.Wait()
	return runs, errors.Join(errs...)
}

// add reports what an algorithm makes of a plight.
func (t *trouble) add(r *report, a lb.Algorithm, plight string) {
	key := "slow/" + a.String() + "/" + plight
	r.add(key+"/p99", "ms", summary(t.p99))
	r.add(key+"/times_random", "ratio", summary(t.times))
	r.value(key+"/share", "percent", t.share(0))
	r.value(key+"/failed", "", float64(t.failed))
}

// cells are those of a table: p99, and over random.
func (t *trouble) cells() []string {
	return []string{tenth(summary(t.p99).Median), fmt.Sprintf("%.2f", summary(t.times).Median)}
}
