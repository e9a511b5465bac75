package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// numbered returns backends 10.1.0.0:80/TCP and so on.
func numbered(from, to int) (out []lb.AddrPort) {
	for i := from; i < to; i++ {
		out = append(out, lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP})
	}
	return out
}

// balanced is a frontend by an algorithm.
func balanced(tb testing.TB, a lb.Algorithm, backends []lb.AddrPort, weights ...uint32) lb.Frontend {
	v := lb.View{Backends: backends, Weights: weights}
	return lb.Frontend{AddrPort: mustAddrPort(tb, "10.96.0.1:80/TCP"), Policy: lb.Policy{Algorithm: a}, Views: [lb.NumViews]lb.View{lb.Internal: v, lb.External: v}, Members: backends}
}

func TestWhatTheTableOfAnAlgorithmHolds(t *testing.T) {
	for _, c := range []struct {
		algorithm lb.Algorithm
		weights   []uint32
		want      string // how it is written, "" where it is dense
	}{
		{lb.AlgorithmDefault, nil, ""},
		{lb.Random, []uint32{2, 4, 2}, "put table 0+4 backends 1 2 2 3"},
		{lb.RR, []uint32{2, 4, 2}, "put table 0+3 backends 1 2 3 cursor"},
		{lb.WRR, nil, "put table 0+3 backends 1 2 3 cursor"},
		{lb.WRR, []uint32{5, 1, 1}, "put table 0+7 backends 1 1 2 1 3 1 1 cursor"},
		{lb.LC, []uint32{5, 1, 1}, ""},
		{lb.WLC, nil, ""},
		{lb.WLC, []uint32{5, 1, 1}, "put table 0+3 backends 1 2 3 weights 5 1 1"},
		{lb.SED, []uint32{10, 10, 20}, "put table 0+3 backends 1 2 3 weights 10 10 20"},
		{lb.NQ, []uint32{1, 2, 3}, "put table 0+3 backends 1 2 3 weights 1 2 3"},
		{lb.P2C, []uint32{1, 2, 1}, "put table 0+4 backends 1 2 2 3 weights 1 2 2 1"},
		{lb.Latency, nil, ""},
	} {
		t.Run(fmt.Sprint(c.algorithm, c.weights), func(t *testing.T) {
			l := &lab{Planner: New(Sizes{})}
			l.set(t, web, balanced(t, c.algorithm, numbered(0, 3), c.weights...))
			got := l.ops[3].String()
			if _, ok := l.ops[3].(PutTable); !ok {
				got = ""
			}
			if table, ids := l.table(); got != c.want || table.Dense() != (c.want == "") || table.Dense() && !slices.Equal(ids, []uint32{1, 2, 3}) {
				t.Errorf("%q, table %s of %v, want %q", got, table, ids, c.want)
			}
		})
	}
}

// Whatever a frontend was before, with the same backends: its tables are those that it would
// have had at first.
func TestATableDoesNotDependOnTheOneBefore(t *testing.T) {
	small := balanced(t, lb.Maglev, numbered(0, 3))
	small.TableSize = 3 // as many as there are backends, in another order
	all := []lb.Frontend{small}
	for a := range lb.Latency + 1 {
		all = append(all, balanced(t, a, numbered(0, 3)), balanced(t, a, numbered(0, 3), 5, 5, 5), balanced(t, a, numbered(0, 3), 5, 1, 1))
	}
	tables := func(l *lab) (keys []string) {
		for _, t := range l.frontends[all[0].AddrPort].tables {
			if t != nil {
				keys = append(keys, fmt.Sprintf("%q in %d slots", t.key, t.region.Size))
			}
		}
		return keys
	}
	for _, to := range all {
		fresh := &lab{Planner: New(Sizes{})}
		fresh.set(t, web, to)
		for _, from := range all {
			l := &lab{Planner: New(Sizes{})}
			l.set(t, web, from)
			l.set(t, web, to)
			if diff := cmp.Diff(tables(fresh), tables(l)); diff != "" {
				t.Errorf("%s, weights %v, after %s, weights %v (-want +got):\n%s", to.Algorithm, to.Views[0].Weights, from.Algorithm, from.Views[0].Weights, diff)
			}
		}
	}
}

func TestTheConfiguredAlgorithmIsForServicesThatNameNone(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.SetDefaults(lb.Policy{Algorithm: lb.P2C})
	l.set(t, web, balanced(t, lb.AlgorithmDefault, numbered(0, 2)))
	l.set(t, api)
	for _, f := range l.model.Frontends {
		if f.Views[lb.Internal].Algorithm != lb.P2C || f.Views[lb.External].Algorithm != lb.P2C || f.Algorithm() != lb.P2C {
			t.Errorf("algorithm %s and %s, want p2c", f.Views[lb.Internal].Algorithm, f.Views[lb.External].Algorithm)
		}
	}
}

// sizeOf returns the table of the only frontend.
func (l *lab) table() (Table, []uint32) {
	for _, f := range l.model.Frontends {
		return f.Views[lb.Internal].Table, l.model.Content().Tables[f.Views[lb.Internal].Table]
	}
	return Table{}, nil
}

func TestOnlySlotsThatDifferAreWritten(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.Maglev, lb.Stable} {
		l := &lab{Planner: New(Sizes{})}
		l.set(t, web, balanced(t, a, numbered(0, 10)))
		before, had := l.table()
		l.set(t, web, balanced(t, a, numbered(1, 10)))
		after, has := l.table()
		if before != after {
			t.Errorf("%s: table %s became %s, want it changed in place", a, before, after)
		}
		var differ, written int
		for i := range had {
			if had[i] != has[i] {
				differ++
			}
		}
		for _, op := range l.ops {
			switch op := op.(type) {
			case PutSlots:
				written += len(op.Slots)
			case PutTable:
				if op.Table.Size > 10 { // not the members
					t.Errorf("%s: %d slots are written anew", a, op.Table.Size)
				}
			}
		}
		if written != differ || differ == 0 || differ > 2*len(had)/10 {
			t.Errorf("%s: %d slots differ of %d, %d were written", a, differ, len(had), written)
		}
		l.apply(t, l.Sweep())
		if len(l.model.Backends) != 9 {
			t.Errorf("%s: %d backends are left, want 9", a, len(l.model.Backends))
		}
	}
}

// Two Services share a table: what one of them wants otherwise is another table.
func TestATableThatOthersUseIsNotChanged(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := balanced(t, lb.Maglev, numbered(0, 5))
	l.set(t, web, f)
	other := f
	other.AddrPort = mustAddrPort(t, "10.96.0.2:80/TCP")
	l.set(t, api, other)
	shared := l.model.Frontends[other.AddrPort].Views[lb.Internal].Table
	content := l.model.Content().Tables[shared]
	l.set(t, web, balanced(t, lb.Maglev, numbered(0, 4)))
	if got := l.model.Frontends[other.AddrPort].Views[lb.Internal].Table; got != shared {
		t.Errorf("the other Service has table %s, had %s", got, shared)
	}
	if diff := cmp.Diff(content, l.model.Content().Tables[shared]); diff != "" {
		t.Errorf("the shared table changed (-had +has):\n%s", diff)
	}
}

func TestALimitUndoesAChangeInPlace(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 5})}
	l.set(t, web, balanced(t, lb.Maglev, numbered(0, 5)))
	want := l.model.Content().String()
	if _, err := l.Set(web, []lb.Frontend{balanced(t, lb.Maglev, numbered(0, 6))}); err == nil {
		t.Fatal("a sixth backend is not refused")
	}
	l.set(t, web, balanced(t, lb.Maglev, numbered(0, 5)))
	if len(l.ops) > 0 {
		t.Errorf("as it was before takes:\n%s", text(l.ops))
	}
	if diff := cmp.Diff(want, l.model.Content().String()); diff != "" {
		t.Errorf("content (-before +after):\n%s", diff)
	}
	l.set(t, web)
	l.apply(t, l.Sweep())
	if got := l.model.Content().String(); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// Nodes learn of backends in any order, and have had any others before.
func TestNodesThatKnowTheSameHaveTheSameTable(t *testing.T) {
	for _, a := range []lb.Algorithm{lb.Maglev, lb.Stable} {
		var want []lb.AddrPort
		for seed := range uint64(8) {
			r := rand.New(rand.NewPCG(seed, 2))
			l := &lab{Planner: New(Sizes{})}
			l.SetHashKey(maglev.KeyOf([]byte("all nodes")))
			for range 5 {
				all := numbered(0, 30)
				r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				some := all[:1+r.IntN(20)]
				slices.SortFunc(some, lb.AddrPort.Compare)
				l.set(t, web, balanced(t, a, some))
			}
			l.set(t, web, balanced(t, a, numbered(0, 12)))
			_, ids := l.table()
			var got []lb.AddrPort
			for _, id := range ids {
				got = append(got, l.model.Backends[id])
			}
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b lb.AddrPort) bool { return a == b })); diff != "" {
				t.Fatalf("%s: two nodes differ:\n%s", a, diff)
			}
		}
	}
}

// With the list of members, which stands beside it.
func TestTablesForHashesAreSmall(t *testing.T) {
	for _, c := range []struct{ backends, kib int }{{1, 2}, {10, 2}, {11, 32}, {100, 32}} {
		l := &lab{Planner: New(Sizes{})}
		l.set(t, web, balanced(t, lb.Maglev, numbered(0, c.backends)))
		if got := 4 * l.Needs().Slots; got > uint32(c.kib)*1024 {
			t.Errorf("%d backends take %d bytes, want at most %d KiB", c.backends, got, c.kib)
		}
	}
}

func TestWeightsKeepTheirRatiosInFewSlots(t *testing.T) {
	for _, c := range []struct{ weights, want []uint32 }{
		{nil, nil},
		{[]uint32{10, 20, 30}, []uint32{1, 2, 3}},
		{[]uint32{65535, 1}, []uint32{1024, 1}},
		{[]uint32{1, 1, 65535, 65535}, []uint32{1, 1, 512, 512}},
	} {
		if diff := cmp.Diff(c.want, reduce(c.weights)); diff != "" {
			t.Errorf("reduce(%v) (-want +got):\n%s", c.weights, diff)
		}
	}
}

// Its slots change in place, so they have to be there, whatever they name.
func TestATableForHashesIsNeverDense(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := balanced(t, lb.Maglev, numbered(0, 2))
	f.TableSize = 2
	l.set(t, web, f)
	if table, ids := l.table(); table.Dense() || len(ids) != 2 {
		t.Errorf("table %s of %v", table, ids)
	}
	c := l.model.Content()
	for key, value := range c.Frontends { // as nothing but an error would have it
		for i := range value.Views[:lb.FallbackZone] {
			value.Views[i].Table = Table{DenseSlot | 1, 2}
		}
		value.Members = Table{}
		c.Frontends[key] = value
	}
	l.model.Frontends, l.Planner = c.Frontends, nil
	p, err := Adopt(l.model.Content(), Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	g := balanced(t, lb.Maglev, numbered(1, 3))
	g.TableSize = 2
	ops, err := p.Set(web, []lb.Frontend{g})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if put, ok := op.(PutSlots); ok && put.Table.Dense() {
			t.Errorf("%s", put)
		}
	}
}
