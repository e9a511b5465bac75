package lb

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheBetterClaimIsByKindThenAgeThenName(t *testing.T) {
	name := func(n string) ServiceName { return ServiceName{Namespace: "ns", Name: n} }
	old, young := Age{Created: 100, UID: "z"}, Age{Created: 200, UID: "a"}
	want := []Claim{
		{name("z"), ClusterIP, old},
		{name("a"), ClusterIP, young},
		{name("a"), ClusterIP, Age{}},
		{name("a"), NodePort, old},
		{name("a"), LoadBalancerIP, old},
		{name("z"), ExternalIP, old},
		{name("b"), ExternalIP, Age{Created: 200, UID: "a"}},
		{name("a"), ExternalIP, Age{Created: 200, UID: "b"}},
		{name("a"), ExternalIP, Age{}},
		{name("b"), ExternalIP, Age{}},
	}
	got := slices.Clone(want)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		random.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, Claim.Compare)
		if !slices.Equal(want, got) {
			t.Fatalf("order\n%v, want\n%v", got, want)
		}
	}
}
