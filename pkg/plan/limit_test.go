package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// many is a frontend with n backends of its own.
func many(tb testing.TB, at string, net, n int) lb.Frontend {
	tb.Helper()
	var backends []string
	for i := range n {
		backends = append(backends, fmt.Sprintf("10.0.%d.%d:80/TCP", net, i+1))
	}
	return clusterIP(tb, at, backends...)
}

// has fails the test unless these Services have frontends in force.
func (l *lab) has(tb testing.TB, want ...lb.ServiceName) {
	tb.Helper()
	if got := l.Services(); !slices.Equal(got, want) {
		tb.Errorf("in force: %v, want %v", got, want)
	}
}

func TestTheServiceThatUsesMostMakesRoom(t *testing.T) {
	ranges := many(t, "203.0.113.1:80/TCP", 1, 1)
	ranges.Kind, ranges.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.128/25")}
	less := many(t, "203.0.113.2:80/TCP", 2, 1)
	less.Kind, less.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	port := func(name string, f lb.Frontend) lb.Frontend { f.Port = name; return f }
	for name, c := range map[string]struct {
		limits     uses
		most, asks []lb.Frontend
	}{
		"backends":  {uses{limitedBackends: 4}, []lb.Frontend{many(t, "10.96.0.1:80/TCP", 1, 3)}, []lb.Frontend{many(t, "10.96.0.2:80/TCP", 2, 2)}},
		"slots":     {uses{limitedSlots: 4}, []lb.Frontend{many(t, "10.96.0.1:80/TCP", 1, 3)}, []lb.Frontend{many(t, "10.96.0.2:80/TCP", 2, 2)}},
		"frontends": {uses{limitedFrontends: 2}, []lb.Frontend{many(t, "10.96.0.1:80/TCP", 1, 1), many(t, "10.96.0.1:81/TCP", 1, 1)}, []lb.Frontend{many(t, "10.96.0.2:80/TCP", 2, 1)}},
		"services": {uses{limitedServices: 2}, []lb.Frontend{port("a", many(t, "10.96.0.1:80/TCP", 1, 1)), port("b", many(t, "10.96.0.1:81/TCP", 1, 1))},
			[]lb.Frontend{many(t, "10.96.0.2:80/TCP", 2, 1)}},
		"source_ranges": {uses{limitedRanges: 2}, []lb.Frontend{ranges}, []lb.Frontend{less}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lab{Planner: New(Sizes{}), reuse: &reuse{}}
			l.limits = c.limits
			l.set(t, web, c.most...)
			l.set(t, api, c.asks...)
			l.has(t, api)
			short := l.Shortages()
			if len(short) != 1 || short[0].Service != web || !strings.Contains(short[0].Error(), " entries of the "+name+" map, this one for ") {
				t.Errorf("problems %v, want one of %s that names the %s map", short, web, name)
			} else if short[0].Scope != lb.ScopeNode {
				t.Errorf("a full map is a problem of scope %s, want the node", short[0].Scope)
			}
			l.apply(t, l.Sweep())
			l.set(t, api)
			if again := l.TakeDisplaced(); !slices.Contains(again, web) {
				t.Errorf("to be set again: %v, want %s, for which there is room", again, web)
			}
			l.set(t, web, c.most...)
			l.has(t, web)
			if short := l.Shortages(); len(short) > 0 {
				t.Errorf("problems %v though there is room", short)
			}
		})
	}
}

func TestOfEqualUsersTheYoungerIsRefused(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 3})}
	older, younger := many(t, "10.96.0.1:80/TCP", 1, 2), many(t, "10.96.0.2:80/TCP", 2, 2)
	older.Age.Created, younger.Age.Created = 1, 2
	l.set(t, api, younger)
	l.set(t, web, older)
	l.has(t, web)
	older.Age = younger.Age // now the name decides
	l.set(t, web)
	l.set(t, api, younger)
	if _, err := l.Set(web, []lb.Frontend{older}); err == nil {
		t.Errorf("%s is not refused, though %s is as large and comes first by name", web, api)
	}
	l.has(t, api)
}

func TestATableIsOfTheUsualSizeBeforeItsServiceIsRefused(t *testing.T) {
	big := many(t, "10.96.0.1:80/TCP", 1, 2)
	big.Algorithm, big.TableSize = lb.Maglev, 16381
	usual := New(Sizes{}).demandOf(web, withUsualTables([]lb.Frontend{big})).full[limitedSlots]
	l := &lab{Planner: New(Sizes{Slots: uint32(usual) + 8000})}
	l.limits[limitedSlots] = 16381 + 4
	l.set(t, web, big)
	if got := l.model.Frontends[big.AddrPort].Views[lb.Internal].Table.Size; got != 16381 {
		t.Fatalf("the table has %d slots while there is room, want 16381", got)
	}
	l.set(t, api, many(t, "10.96.0.2:80/TCP", 2, 5))
	if again := l.TakeDisplaced(); !slices.Contains(again, web) {
		t.Errorf("to be set again: %v, want %s", again, web)
	}
	l.set(t, web, big)
	l.has(t, api, web)
	if got := l.model.Frontends[big.AddrPort].Views[lb.Internal].Table.Size; got >= 16381 || got < 3 {
		t.Errorf("the table has %d slots, want the usual size", got)
	}
	short := l.Shortages()
	if len(short) != 1 || !strings.Contains(short[0].Error(), "metadata.annotations[headgate.dev/table-size]: is not used: all Services together ask for ") {
		t.Errorf("problems %v, want one about the table", short)
	}
	l.set(t, api)
	l.set(t, web, big)
	if got := l.model.Frontends[big.AddrPort].Views[lb.Internal].Table.Size; got != 16381 {
		t.Errorf("the table has %d slots when there is room again, want 16381", got)
	}
}

func TestARefusedServiceKeepsWhatNobodyNeeds(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 4})}
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 2))
	if _, err := l.Set(web, []lb.Frontend{many(t, "10.96.0.1:80/TCP", 1, 5)}); err == nil || !strings.Contains(err.Error(), "keeps the addresses and backends that it had: all Services together ask for 5 entries of the backends map, this one for 5, and there is room for 4") {
		t.Errorf("five backends in a map of four: %v", err)
	}
	if short := l.Shortages(); len(short) != 1 || short[0].Scope != lb.ScopeObject {
		t.Errorf("a Service that asks for more than a map holds: %+v, want a problem of the object", short)
	}
	l.has(t, web)
	l.wantUnserved(t)
	l.set(t, api, many(t, "10.96.0.2:80/TCP", 2, 2))
	l.has(t, api, web)
	other := lb.ServiceName{Namespace: "default", Name: "other"}
	l.set(t, other, many(t, "10.96.0.1:80/TCP", 3, 1)) // at its address, too
	l.has(t, api, other)
	l.wantUnserved(t, web)
}

// wantUnserved checks which Services have nothing in force for lack of room.
func (l *lab) wantUnserved(t *testing.T, want ...lb.ServiceName) {
	t.Helper()
	var got []lb.ServiceName
	for _, short := range l.Shortages() {
		if short.Unserved {
			got = append(got, short.Service)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("not served are %v, want %v", got, want)
	}
}

func TestWhatAnEarlierAgentWroteCountsBeforeItIsSet(t *testing.T) {
	before := &lab{Planner: New(Sizes{})}
	before.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 3))
	p, err := Adopt(before.model.Content(), Sizes{Backends: 4})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Planner: p, model: before.model}
	l.set(t, api, many(t, "10.96.0.2:80/TCP", 2, 2))
	l.has(t, api)
	if short := l.Shortages(); len(short) != 1 || short[0].Service != web {
		t.Errorf("problems %v, want one of %s", short, web)
	}
}

// Two Services are refused at once, each for another map, and one gives up what the other
// has waited for.
func TestARefusedServiceInheritsNothing(t *testing.T) {
	l := &lab{Planner: New(Sizes{Frontends: 3, Backends: 6})}
	l.set(t, api, many(t, "10.96.0.1:80/TCP", 1, 4))
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 2, 1), many(t, "10.96.0.2:80/TCP", 3, 1))
	if c := l.Conflicts(); len(c) != 1 || c[0].Service != web {
		t.Fatalf("conflicts %v, want one of %s", c, web)
	}
	other := lb.ServiceName{Namespace: "default", Name: "other"}
	l.set(t, other, many(t, "10.96.0.3:80/TCP", 4, 3), many(t, "10.96.0.4:80/TCP", 4, 3))
	l.has(t, other, web)
	if fs := l.model.Content().Frontends; len(fs) != 3 {
		t.Errorf("in force: %v, want two of %s and the one that %s had", fs, other, web)
	}
}

func TestWhatWaitsToBeClearedIsWaitedFor(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 2})}
	for net := range 2 {
		l.set(t, web, many(t, "10.96.0.1:80/TCP", net, 2))
	}
	third := many(t, "10.96.0.1:80/TCP", 3, 2)
	if ops, err := l.Set(web, []lb.Frontend{third}); !errors.Is(err, ErrLater) || len(ops) > 0 || len(l.Shortages()) > 0 {
		t.Fatalf("a map full of what is gone: %v, operations %v, problems %v", err, ops, l.Shortages())
	}
	l.apply(t, l.Sweep())
	l.set(t, web, third)
}

func TestWhatNeedsNoMoreThanBeforeNeedNotWait(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 4))
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 1))
	l.limits = uses{limitedBackends: 1} // of which four are taken as long as nothing is cleared
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 1), many(t, "10.96.0.2:80/TCP", 1, 1))
}

// Services that were not changed yet may have more source ranges than they ask for.
func TestSourceRangesThatTheMapHasNoRoomForWait(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.limits = uses{limitedRanges: 1}
	for i := range byte(roomForLimit) {
		l.ranges[SourceRange{9, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 32)}] = 1
	}
	f := many(t, "203.0.113.1:80/TCP", 1, 1)
	f.Kind, f.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	_, err := l.Set(web, []lb.Frontend{f})
	if err == nil || !strings.Contains(err.Error(), "is not changed yet: it takes 3 entries of the source_ranges map, with those that drain, and there is room for 2; join neighbouring ranges") {
		t.Errorf("a range more than there is room for: %v", err)
	}
	l.ranges[SourceRange{1, f.SourceRanges[0]}] = 1 // there already
	l.set(t, web, f)
}

func TestSourceRangesThatAreTheSameCountOnce(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.limits = uses{limitedRanges: 1}
	f := many(t, "203.0.113.1:80/TCP", 1, 1)
	f.Kind, f.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.51.100.7/24")}
	l.set(t, web, f)
}

func TestAServiceAsksForWhatItThenHas(t *testing.T) {
	l := &lab{Planner: New(Sizes{Frontends: 1, Slots: 2, Backends: 3, Services: 4})}
	if want := (uses{1, 2, 3, 4, MaxSourceRanges}); l.limits != want {
		t.Errorf("the limits are %v, want %v", l.limits, want)
	}
	l = &lab{Planner: New(Sizes{})}
	first, second := many(t, "203.0.113.1:80/TCP", 1, 3), many(t, "203.0.113.1:81/TCP", 1, 3)
	first.Port, second.Port, second.Algorithm = "a", "b", lb.LC // one table does for both
	for _, f := range []*lb.Frontend{&first, &second} {
		f.Kind, f.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	asks := l.demandOf(web, []lb.Frontend{first, second}).full
	l.set(t, web, first, second)
	if want := (uses{2, 3, 3, 2, 2}); asks != want || l.inForce(web) != want {
		t.Errorf("asks for %v, has %v, want %v", asks, l.inForce(web), want)
	}
}

func TestTheSlotsOfATableAreKnownBeforeItIsFilled(t *testing.T) {
	w := &world{Rand: rand.New(rand.NewPCG(1, 7))}
	for range 2000 {
		v := w.view()
		spec := tableSpec{backends: v.Backends, weights: v.Weights, algorithm: lb.Algorithm(1 + w.IntN(13)), size: 7}
		var ops []Op
		want := uint32(0)
		if t := newPool().useTable(spec, nil, &ops); t != nil {
			want = t.extent()
		}
		if got := spec.extent(); got != want {
			t.Fatalf("%s with weights %v: %d slots, want %d", spec.algorithm, v.Weights, got, want)
		}
	}
}

// Whatever the others ask for, a Service that uses no more of each map than the limit
// by the number of users gets all, or tables of the usual size where it does so with
// these, and what all get fits.
func TestAFairShareIsNeverRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3000 {
		demands, users, limits := newDemands(), uses{}, uses{}
		for m := range limits {
			limits[m] = uint64(rng.IntN(100))
		}
		for i := range 1 + rng.IntN(8) {
			name := lb.ServiceName{Name: fmt.Sprint(i)}
			d := demand{claim: lb.Claim{Service: name, Age: lb.Age{Created: int64(rng.IntN(2))}}}
			for m := range d.full {
				if rng.IntN(3) > 0 {
					d.full[m] = uint64(rng.IntN(60))
					users[m] += min(d.full[m], 1)
				}
			}
			d.spare = uint64(rng.IntN(int(d.full[limitedSlots]) + 1))
			demands.add(d)
		}
		r := divide(demands, limits)
		var total uses
		for d := range demands.all() {
			name := d.claim.Service
			has, full := r.rations[name]
			isFair := func(u uses) bool {
				for m, n := range u {
					if limits[m] > 0 && n*users[m] > limits[m] {
						return false
					}
				}
				return true
			}
			if isFair(d.full) && full || isFair(d.reduced()) && has.refused {
				t.Fatalf("%s asks for %v of %v, which %v use, and gets %+v", name, d.full, limits, users, has)
			}
			switch {
			case has.refused:
			case has.reduced:
				total = total.plus(d.reduced())
			default:
				total = total.plus(d.full)
			}
		}
		if total != r.total || !total.fit(limits) {
			t.Fatalf("%v are given of %v, counted %v", total, limits, r.total)
		}
		for name, has := range r.rations {
			if d := demands.get(name); has.refused && total.plus(d.reduced()).fit(limits) {
				t.Fatalf("%s is refused, though there is room for %v beside %v of %v", name, d.reduced(), total, limits)
			}
		}
	}
}
