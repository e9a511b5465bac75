package maglev

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// filler is a way to fill a table.
type filler struct {
	name string
	fill func(Key, []Backend, uint32) []uint32
}

var fillers = []filler{{"maglev", Fill}, {"stable", FillStable}}

var key = KeyOf([]byte("of the tests"))

// backends returns n backends of weight 1.
func backends(n int) (out []Backend) {
	for i := range n {
		out = append(out, Backend{fmt.Sprintf("10.%d.%d.%d:80", i>>16, i>>8&255, i&255), 1})
	}
	return out
}

// shares counts the slots of each backend.
func shares(table []uint32, n int) []int {
	out := make([]int, n)
	for _, i := range table {
		out[i]++
	}
	return out
}

// imbalance is the largest share divided by the mean.
func imbalance(table []uint32, n int) float64 {
	return float64(slices.Max(shares(table, n))) * float64(n) / float64(len(table))
}

// movement removes each of some backends in turn and returns how many slots change,
// divided by those that must.
func movement(f filler, n int, size uint32) float64 {
	all := backends(n)
	had := f.fill(key, all, size)
	own := shares(had, n)
	moved, must := 0, 0
	for r := range 8 {
		gone := r * n / 8
		has := f.fill(key, slices.Delete(slices.Clone(all), gone, gone+1), size)
		for slot, i := range has {
			if int(i) >= gone {
				i++
			}
			if i != had[slot] {
				moved++
			}
		}
		must += own[gone]
	}
	return float64(moved) / float64(must)
}

func TestSlotsAreSharedAndFewMove(t *testing.T) {
	for _, c := range []struct {
		size          uint32
		n             int
		name          string
		uneven, moved float64
	}{
		{499, 10, "maglev", 1.01, 1.6},
		{499, 10, "stable", 1.025, 1.25},
		{8089, 100, "maglev", 1.01, 3.5},
		{8089, 100, "stable", 1.03, 1.7},
		{65537, 100, "maglev", 1.002, 1.7},
		{65537, 100, "stable", 1.025, 1.2},
		{65537, 1000, "maglev", 1.01, 7.5},
		{65537, 1000, "stable", 1.025, 2.2},
	} {
		f := fillers[slices.IndexFunc(fillers, func(f filler) bool { return f.name == c.name })]
		uneven, moved := imbalance(f.fill(key, backends(c.n), c.size), c.n), movement(f, c.n, c.size)
		t.Logf("%s %d/%d: max/mean %.3f, moved/ideal %.2f", c.name, c.size, c.n, uneven, moved)
		if uneven > c.uneven || moved > c.moved {
			t.Errorf("%s %d/%d: max/mean %.3f (at most %.3f), moved/ideal %.2f (at most %.2f)", c.name, c.size, c.n, uneven, c.uneven, moved, c.moved)
		}
	}
}

func TestTheOrderOfBackendsDoesNotMatter(t *testing.T) {
	all := backends(40)
	for i := range all {
		all[i].Weight = uint32(1 + i%3)
	}
	for _, f := range fillers {
		want := f.fill(key, all, 8089)
		for seed := range uint64(5) {
			shuffled := slices.Clone(all)
			rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			for slot, i := range f.fill(key, shuffled, 8089) {
				if shuffled[i].Name != all[want[slot]].Name {
					t.Fatalf("%s: slot %d differs by the order of the backends", f.name, slot)
				}
			}
		}
	}
}

func TestAnotherKeyIsAnotherTable(t *testing.T) {
	for _, f := range fillers {
		a, b := f.fill(key, backends(10), 8089), f.fill(KeyOf([]byte("another")), backends(10), 8089)
		same := 0
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		if same < 600 || same > 1000 { // a tenth by chance
			t.Errorf("%s: %d of %d slots are the same by two keys", f.name, same, len(a))
		}
	}
}

func TestWeightsAreShares(t *testing.T) {
	for _, f := range fillers {
		for _, weights := range [][]uint32{{1, 2, 3, 4}, {100, 1}, {65535, 65535, 1}, {7, 7, 7}} {
			var all []Backend
			var sum float64
			for i, w := range weights {
				all = append(all, Backend{fmt.Sprint("b", i), w})
				sum += float64(w)
			}
			const size = 65537
			for i, n := range shares(f.fill(key, all, size), len(all)) {
				want := size * float64(weights[i]) / sum
				if float64(n) > 1.021*want+2 || float64(n) < 0.93*want-2 {
					t.Errorf("%s: weights %v give backend %d %d slots, want about %.0f", f.name, weights, i, n, want)
				}
			}
		}
	}
}

// Few slots, sizes that are no primes, one backend, more backends than slots: every
// slot is filled.
func TestTablesOfAnySize(t *testing.T) {
	for _, f := range fillers {
		for _, size := range []uint32{1, 2, 3, 4, 6, 7, 12, 499, 500, 512, 30030} {
			for _, n := range []int{1, 2, 3, 10, 600} {
				table := f.fill(key, backends(n), size)
				if len(table) != int(size) || int(slices.Max(table)) >= n {
					t.Errorf("%s: %d slots for %d backends: %v", f.name, size, n, table)
				}
			}
		}
		if f.fill(key, nil, 7) != nil || f.fill(key, backends(3), 0) != nil {
			t.Errorf("%s: a table of nothing", f.name)
		}
	}
}

func TestSizesArePrimeAndGrow(t *testing.T) {
	last := uint32(0)
	for _, n := range []int{1, 10, 11, 100, 101, 1000, 1001, 5000, 100000} {
		size := SizeFor(n)
		if size < last {
			t.Errorf("%d backends have %d slots, fewer had %d", n, size, last)
		}
		last = size
		for d := uint32(2); d*d <= size; d++ {
			if size%d == 0 {
				t.Errorf("%d slots for %d backends: %d divides them", size, n, d)
			}
		}
	}
}

func TestTheHashIsSipHash(t *testing.T) {
	// Test vectors of the paper's appendix: key 00…0f, messages 00…0e and none.
	k := Key{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	message := "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e"
	if got := k.hash(message); got != 0xa129ca6149be45e5 {
		t.Errorf("hash %#x, want 0xa129ca6149be45e5", got)
	}
	if got := k.hash(""); got != 0x726fdb47dd0e0e31 {
		t.Errorf("hash of nothing %#x", got)
	}
}

func BenchmarkFill(b *testing.B) {
	for _, f := range fillers {
		for _, n := range []int{3, 10, 100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", f.name, n), func(b *testing.B) {
				all := backends(n)
				for b.Loop() {
					f.fill(key, all, SizeFor(n))
				}
				b.ReportMetric(float64(4*SizeFor(n)), "bytes/table")
			})
		}
	}
}
