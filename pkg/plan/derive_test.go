package plan

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// Looking at all endpoints shows in memory: the maps, lists and tables that are
// made of them on the way. Copies are larger, but not more of them.
func TestAChangeTakesAsManyAllocationsHoweverManyEndpointsTheServiceHas(t *testing.T) {
	cost := func(endpoints int) float64 {
		st, p, name := manyEndpoints(t, endpoints)
		version := 0
		change := func() {
			version++
			st.Apply(oneSlice(hundred(endpoints/200, endpoints/100+version)))
			if ops := set(t, st, p, name); len(ops) == 0 {
				t.Error("nothing changed")
			}
			p.Sweep()
		}
		change() // maps grow
		return testing.AllocsPerRun(20, change)
	}
	few, many := cost(500), cost(20_000)
	if many > few+few/4 {
		t.Errorf("a change takes %v allocations among 20,000 endpoints, and %v among 500", many, few)
	}
}

// What a table has lost is known when it is derived. One that comes again is found, and has lost what the
// lists say.
func TestWhatADerivedTableHasLostIsToldOnce(t *testing.T) {
	st, p, name := manyEndpoints(t, 500)
	had := st.Frontends(name)[0].Members
	for version := range 6 {
		st.Apply(oneSlice(hundred(2, 1000+version%3)))
		now := st.Frontends(name)
		if _, err := p.Set(name, now); err != nil {
			t.Fatal(err)
		}
		var want []Loss
		for _, b := range had {
			if !slices.Contains(now[0].Members, b) {
				want = append(want, Loss{Frontend: now[0].AddrPort, Backend: b})
			}
		}
		if got := p.TakeLosses(); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("version %d: lost %v, want %v", version, got, want)
		}
		had = now[0].Members
	}
}

func TestWhatOneListHasBeyondAnother(t *testing.T) {
	at := func(ports ...uint16) (out []lb.AddrPort) {
		for _, p := range ports {
			out = append(out, lb.AddrPort{Port: p, Protocol: lb.TCP})
		}
		return out
	}
	for _, tc := range []struct {
		name              string
		all, others, want []lb.AddrPort
	}{
		{"nothing", nil, at(1), nil},
		{"of nothing", at(1, 2), nil, at(1, 2)},
		{"first, middle, last", at(1, 2, 3, 4, 5), at(2, 4), at(1, 3, 5)},
		{"others have more", at(2, 4), at(1, 2, 3, 5), at(4)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := without(tc.all, tc.others); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
