package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// tableOf returns maps with so many places for frontends, in some order.
func tableOf(tb testing.TB, places uint32, key uint64) *mapSet {
	tb.Helper()
	s := smallMaps(tb)
	for _, name := range []string{"frontends", "fallbacks"} {
		s.byName[name].Close()
		spec, err := loadHeadgate()
		if err != nil {
			tb.Fatal(err)
		}
		spec.Maps[name].MaxEntries = places
		if s.byName[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			tb.Fatal(err)
		}
	}
	s.frontends.Close()
	s.fallbacks.Close()
	if err := s.mapMemory(true); err != nil {
		tb.Fatal(err)
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], key)
	random := rand.NewChaCha8(seed)
	for i := range s.factors {
		s.factors[i] = random.Uint64()
	}
	return s
}

// row returns one of a row of addresses.
func row(n int) lb.AddrPort {
	return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 96 + byte(n>>16), byte(n >> 8), byte(n)}), Port: 80, Protocol: lb.TCP}
}

// ledger is the table as a map, with what was at each place before.
type ledger struct {
	*mapSet
	want   map[lb.AddrPort]plan.Frontend
	before []headgateAddrPort
}

func newLedger(s *mapSet) *ledger {
	return &ledger{s, map[lb.AddrPort]plan.Frontend{}, make([]headgateAddrPort, s.frontends.len)}
}

// do applies an operation, and checks what became of each place and frontend.
func (l *ledger) do(t *testing.T, op plan.Op) {
	t.Helper()
	put, _ := op.(plan.PutFrontend)
	old, had := l.distance(put.Key)
	if err := l.apply(op); err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	if now, _ := l.distance(put.Key); had && put.Anew && now <= old {
		t.Fatalf("%s: place %d of the search, which had passed %d", op, now, old)
	}
	_, clears := op.(plan.ClearFrontend)
	for place := range l.frontends.len {
		was, is := l.before[place], l.frontends.at(place).At
		isFree := was == freed || was.Protocol == noFrontend
		switch {
		case was == is, isFree && isFrontend(is), isFrontend(was) && is == removed(was):
		case clears && (is == freed || is.Protocol == noFrontend) && !isFrontend(was):
		default:
			t.Fatalf("%s: place %d goes from %+v to %+v", op, place, was, is)
		}
		l.before[place] = is
	}
	l.check(t, op.String())
}

// distance returns how many places are searched before that of a frontend.
func (l *ledger) distance(at lb.AddrPort) (n int, found bool) {
	has, found := l.findFrontend(encodeAddrPort(at))
	for place := range l.reach(encodeAddrPort(at)) {
		if place == has {
			break
		}
		n++
	}
	return n, found
}

// check wants every frontend to be found, and no other.
func (l *ledger) check(t *testing.T, when string) {
	t.Helper()
	got := map[lb.AddrPort]plan.Frontend{}
	_ = l.eachFrontend(func(at lb.AddrPort, f plan.Frontend) error { got[at] = f; return nil })
	if !maps.Equal(l.want, got) {
		t.Fatalf("%s: the frontends are %v, want %v", when, got, l.want)
	}
	for n := range 64 {
		at := row(n)
		place, found := l.findFrontend(encodeAddrPort(at))
		if _, want := l.want[at]; found != want || found && l.frontends.at(place).Place != place {
			t.Fatalf("%s: %s is found: %v, want %v, at %d", when, at, found, want, place)
		}
	}
}

// TestTheTableOfFrontendsIsAMap has frontends come, change, change over and go; no place is
// given to another frontend before it was cleared.
func TestTheTableOfFrontendsIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := newLedger(tableOf(t, 64, seed))
		gone := map[lb.AddrPort]bool{}
		for i := range 2000 {
			at := row(r.IntN(64))
			_, there := l.want[at]
			switch {
			case r.IntN(4) == 0 && len(gone) > 0:
				for at := range gone {
					l.do(t, plan.ClearFrontend{Key: at})
				}
				clear(gone)
			case there && r.IntN(2) == 0:
				delete(l.want, at)
				gone[at] = true
				l.do(t, plan.DeleteFrontend{Key: at})
			case len(l.want)+len(gone) < 32:
				anew := there && r.IntN(2) == 0 && !gone[at]
				gone[at] = gone[at] || anew
				f := plan.Frontend{Service: uint32(i), Steering: lb.Steering{PassiveHealth: lb.SwitchOff, Spill: uint32(i)}}
				if !gone[at] {
					delete(gone, at)
				}
				l.want[at] = f
				l.do(t, plan.PutFrontend{Key: at, Value: f, Anew: anew})
			}
		}
		wantSettled(t, l)
		wantTaken(t, l, seed)
		for _, at := range append(keys(l.want), keys(gone)...) {
			delete(l.want, at)
			l.do(t, plan.DeleteFrontend{Key: at})
			l.do(t, plan.ClearFrontend{Key: at})
		}
		for place := range l.frontends.len {
			if at := l.frontends.at(place).At; at != (headgateAddrPort{}) {
				t.Errorf("seed %d: all are gone, and place %d has %+v", seed, place, at)
			}
		}
	}
}

func keys[K comparable, V any](m map[K]V) (out []K) {
	for k := range maps.Keys(m) {
		out = append(out, k)
	}
	return out
}

// wantSettled wants the next agent to find the same, and places where one was to be free.
func wantSettled(t *testing.T, l *ledger) {
	t.Helper()
	if err := l.settleFrontends(); err != nil {
		t.Fatal(err)
	}
	l.check(t, "settled")
	for place := range l.frontends.len {
		if at := l.frontends.at(place).At; at.Protocol == removedFrontend && at != freed {
			t.Errorf("settled, and place %d has %+v", place, at)
		}
		l.before[place] = l.frontends.at(place).At
	}
}

// wantTaken wants a larger table, and one in another order, to get the same.
func wantTaken(t *testing.T, l *ledger, seed uint64) {
	t.Helper()
	spec, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []*mapSet{tableOf(t, 128, seed), tableOf(t, 64, seed+100)} {
		if err := to.takeFrontends(&object{spec: spec}, l.mapSet); err != nil {
			t.Fatal(err)
		}
		(&ledger{mapSet: to, want: l.want}).check(t, fmt.Sprintf("taken to %d places", to.frontends.len))
	}
}

// An agent may die when a frontend has its new place, and still its old one.
func TestAFrontendThatWasChangingOverHasOnePlace(t *testing.T) {
	l := newLedger(tableOf(t, 64, 1))
	at := row(1)
	for service := range uint32(2) {
		f, fallbacks := encodeFrontend(plan.Frontend{Service: 1 + service, Steering: lb.Steering{PassiveHealth: lb.SwitchOff}})
		if err := l.addFrontend(encodeAddrPort(at), f, fallbacks); err != nil {
			t.Fatal(err)
		}
	}
	l.want[at] = plan.Frontend{Service: 1, Steering: lb.Steering{PassiveHealth: lb.SwitchOff}}
	wantSettled(t, l)
}

// Half of a map is filled, in any order and with rows of addresses: all are within reach.
func TestHalfAMapOfFrontendsIsWithinReach(t *testing.T) {
	for seed := range uint64(10) {
		s := tableOf(t, 1<<16, seed)
		for n := range 1 << 15 {
			at := encodeAddrPort(row(n))
			if seed%2 == 0 {
				at = encodeAddrPort(row(int(rand.Uint32N(1 << 22))))
			}
			if err := s.addFrontend(at, headgateFrontend{}, headgateFallbacks{}); err != nil {
				t.Fatalf("frontend %d, seed %d: %v", n, seed, err)
			}
		}
	}
}

func TestAFrontendWithoutAPlaceIsNotWritten(t *testing.T) {
	s := tableOf(t, 4, 1)
	var err error
	for n := range 5 {
		err = s.apply(plan.PutFrontend{Key: row(n), Value: plan.Frontend{Service: 1}})
	}
	if !errors.Is(err, errNoPlace) {
		t.Errorf("the fifth frontend of four places: %v", err)
	}
}
