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
	demands := map[lb.ServiceName]demand{}
	ask := func(n string, frontends, slots, spare uint64) {
		demands[name(n)] = demand{lb.Claim{Service: name(n)}, uses{limitedFrontends: frontends, limitedSlots: slots}, spare}
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
