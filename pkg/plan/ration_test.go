package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// Services are refused for one map, and then others for another map: which leaves room
// in the first one, but not for all.
func TestThoseThatFitAgainComeBackSmallestFirst(t *testing.T) {
	name := func(n string) lb.ServiceName { return lb.ServiceName{Namespace: "default", Name: n} }
	demands := newDemands()
	ask := func(n string, frontends, slots, spare uint64) {
		demands.add(demand{lb.Claim{Service: name(n)}, uses{limitedFrontends: frontends, limitedSlots: slots}, spare})
	}
	ask("large", 5, 10, 0)
	ask("middle", 4, 25, 15) // for hashes
	ask("greedy", 3, 40, 0)
	ask("small", 2, 10, 0)
	got := divide(demands, uses{limitedFrontends: 7, limitedSlots: 30}).rations
	want := map[lb.ServiceName]ration{
		name("large"):  {lacks: limitedFrontends, refused: true},
		name("middle"): {lacks: limitedSlots, reduced: true},
		name("greedy"): {lacks: limitedSlots, refused: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(ration{})); diff != "" {
		t.Errorf("rations (-want +got):\n%s", diff)
	}
}

// A Service may have its tables reduced first, and be refused later: what it keeps counts
// once. The smallest keep theirs first.
func TestWhatRefusedServicesKeep(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 4})}
	l.set(t, web, many(t, "10.96.0.1:80/TCP", 1, 1))
	l.set(t, api, many(t, "10.96.0.2:80/TCP", 2, 2))
	of := func(name lb.ServiceName, refuse bool) concession {
		return concession{demand: demand{claim: lb.Claim{Service: name}}, refuse: refuse}
	}
	for others, both := range map[uint64]bool{1: true, 2: false} {
		r := &rationing{
			total: uses{limitedBackends: others}, rations: map[lb.ServiceName]ration{web: {refused: true}, api: {refused: true}},
			made: []concession{of(api, true), of(web, false), of(web, true)},
		}
		l.keepWhatFits(r)
		if !r.rations[web].keeps || r.rations[api].keeps != both {
			t.Errorf("beside %d backends of others: %+v", others, r.rations)
		}
	}
}
