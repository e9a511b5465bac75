package plan

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
)

// What is read back from the maps is what was Set: backends, reasons and, where tables show
// them, the ratios of weights.
func TestFrontendsInForceSurviveAdoption(t *testing.T) {
	name := web
	for _, text := range lb.Algorithms() {
		algorithm, _ := lb.ParseAlgorithm(text)
		t.Run(text, func(t *testing.T) {
			f := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:8080/TCP", "10.0.0.2:8080/TCP", "10.0.0.3:8080/TCP")
			f.Algorithm, f.Port = algorithm, "http"
			for i := range f.Views[:lb.FallbackZone] {
				f.Views[i].Weights, f.Views[i].Why = []uint32{2, 6, 4}, lb.WhyAll
			}
			p, m := New(Sizes{}), &Model{}
			ops, err := p.Set(name, []lb.Frontend{f})
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range ops {
				m.Apply(op)
			}
			p, err = Adopt(m.Content(), Sizes{})
			if err != nil {
				t.Fatal(err)
			}
			want := f
			want.Algorithm = lb.AlgorithmDefault // is not asked for
			for i := range want.Views[:lb.FallbackZone] {
				switch {
				case algorithm.Hashed(), algorithm == lb.RR, algorithm == lb.LC:
					want.Views[i].Weights = nil
				case algorithm != lb.WLC && algorithm != lb.SED && algorithm != lb.NQ:
					want.Views[i].Weights = []uint32{1, 3, 2}
				}
			}
			if d := cmp.Diff([]lb.Frontend{want}, p.Frontends(name), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatDrainsIsNotInForce(t *testing.T) {
	name := web
	p := New(Sizes{})
	p.Tick(time.Unix(1000, 0))
	for _, backends := range [][]string{{"10.0.0.1:8080/TCP", "10.0.0.2:8080/TCP"}, {"10.0.0.2:8080/TCP"}} {
		f := clusterIP(t, "10.96.0.1:80/TCP", backends...)
		f.DrainTime = time.Minute
		if _, err := p.Set(name, []lb.Frontend{f}); err != nil {
			t.Fatal(err)
		}
	}
	if members := p.Frontends(name)[0].Members; len(members) != 1 || members[0].Addr != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("members are %v, want 10.0.0.2 alone", members)
	}
}
