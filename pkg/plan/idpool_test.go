package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

func TestIDsOfATableFollowEachOtherWhereTheyCan(t *testing.T) {
	for _, c := range []struct {
		name          string
		used, members []uint32
		n             int
		want          []uint32
	}{
		{"of nothing", nil, nil, 3, []uint32{1, 2, 3}},
		{"behind the others", []uint32{1, 2, 3}, nil, 2, []uint32{4, 5}},
		{"in a hole that is long enough", []uint32{1, 3, 6, 7, 8}, nil, 2, []uint32{4, 5}},
		{"behind a member", []uint32{1, 2, 3}, []uint32{3}, 2, []uint32{4, 5}},
		{"behind the member with most room", []uint32{1, 4, 7}, []uint32{1, 4}, 2, []uint32{2, 3}},
		{"where all of the table have room", []uint32{1, 2, 5, 9, 10}, []uint32{1}, 2, []uint32{6, 7}},
		{"not behind the last one if most of the pool is free", []uint32{9}, []uint32{9}, 2, []uint32{1, 2}},
		{"anywhere if most of the pool is free", []uint32{3, 6, 9, 12}, nil, 3, []uint32{1, 2, 4}},
	} {
		if got := newIDPool(c.used...).allocFor(c.members, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Whatever comes and goes, no ID is given twice, and at least about half of the pool
// is in use when it grows.
func TestIDsAreGivenOnce(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p, tables, given := newIDPool(), [][]uint32{}, map[uint32]bool{0: true}
		for range 2000 {
			if len(tables) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(tables))
				k := rng.IntN(len(tables[i]) + 1)
				for _, id := range tables[i][:k] {
					delete(given, id)
				}
				p.free(tables[i][:k]...)
				tables[i] = tables[i][k:]
				continue
			}
			if len(tables) == 0 || rng.IntN(3) > 0 {
				tables = append(tables, nil)
			}
			i, before := rng.IntN(len(tables)), p.size()
			ids := p.allocFor(tables[i], 1+rng.IntN(8))
			for _, id := range ids {
				if given[id] {
					t.Fatalf("seed %d: ID %d is given twice", seed, id)
				}
				given[id] = true
			}
			tables[i] = append(tables[i], ids...)
			if p.size() > before && int(before) > 2*len(given) {
				t.Fatalf("seed %d: the pool grows to %d for %d IDs", seed, p.size(), len(given))
			}
			if int(p.taken()) != len(given)-1 {
				t.Fatalf("seed %d: %d taken, want %d", seed, p.taken(), len(given)-1)
			}
		}
	}
}

func TestATableIsDenseAgainAfterARollout(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	at := func(backends []lb.AddrPort, addr string) lb.Frontend {
		f := balanced(t, lb.Random, backends)
		f.AddrPort = mustAddrPort(t, addr)
		return f
	}
	l.set(t, web, at(numbered(0, 4), "10.96.0.1:80/TCP"))
	l.set(t, api, at(numbered(10, 14), "10.96.0.2:80/TCP")) // no room behind the former
	for i := 1; i <= 4; i++ {
		l.set(t, web, at(append(numbered(i, 4), numbered(20, 20+i)...), "10.96.0.1:80/TCP"))
		l.apply(t, l.Sweep())
	}
	want := Table{DenseSlot + 9, 4}
	if got := l.model.Frontends[mustAddrPort(t, "10.96.0.1:80/TCP")].Members; got != want {
		t.Errorf("table %s, want %s", got, want)
	}
}

// A row of IDs behind the others is worth no larger map: what joins a table gets any.
func TestTheRoomOfAMapIsEnoughWhileThereIsSome(t *testing.T) {
	p := newIDPool()
	p.room = 12
	first := p.allocFor(nil, 8)
	p.free(first[1], first[5])
	if ids := p.allocFor([]uint32{first[0], first[4]}, 2); p.size() > p.room || len(ids) != 2 {
		t.Errorf("the pool has %d IDs with %v, and there is room for %d", p.size(), ids, p.room)
	}
	if ids := p.allocFor(first[6:], 3); p.size() > p.room {
		t.Errorf("the pool has %d IDs with %v, and there is room for %d", p.size(), ids, p.room)
	}
	if p.allocFor(nil, 4); p.size() <= p.room {
		t.Errorf("16 IDs have room in %d", p.size())
	}
}
