package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/plan"
)

func TestARateIsFromOneReadingToTheNext(t *testing.T) {
	now := time.Now()
	r := &rates{}
	for _, reading := range []struct {
		after time.Duration
		count uint64
		want  string
	}{
		{0, 100, "-"}, // nobody knows since when
		{2 * time.Second, 100, "0"},
		{2 * time.Second, 101, "0.5"},
		{500 * time.Millisecond, 703, "1204"},
		{time.Second, 9, "-"}, // another Service with its name
		{time.Second, 10, "1.0"},
	} {
		now = now.Add(reading.after)
		r.begin(now)
		if got := lines(r.of("web", reading.count).cell())[0]; got != reading.want {
			t.Errorf("%d after %v: %s, want %s", reading.count, reading.after, got, reading.want)
		}
	}
	r.begin(now.Add(time.Second)) // it was gone meanwhile
	r.begin(now.Add(2 * time.Second))
	if got := r.of("web", 20); got != nil {
		t.Errorf("%s, though it was not read before", got)
	}
	if got := (*rates)(nil).of("web", 1); got != nil {
		t.Errorf("%s of who reads once", got)
	}
}

// Parts are not counted while they are 0.
func TestPartsOfARateBeginAtZero(t *testing.T) {
	now := time.Now()
	r := &rates{}
	for i, reading := range []struct {
		counts map[string]uint64
		known  *rate // of the sum
		want   map[string]rate
	}{
		{map[string]uint64{"a": 5}, nil, nil},
		{map[string]uint64{"a": 5, "b": 4}, new(rate(2)), map[string]rate{"b": 2}},
		{map[string]uint64{"a": 9, "b": 4}, new(rate(2)), map[string]rate{"a": 2}},
		{nil, new(rate(0)), nil},
	} {
		now = now.Add(2 * time.Second)
		r.begin(now)
		if diff := cmp.Diff(reading.want, r.parts("web", reading.counts, reading.known)); diff != "" {
			t.Errorf("reading %d (-want +got):\n%s", i, diff)
		}
	}
}

// What stands still is not told again, though it had a rate before.
func TestWatchingServicesShowsTheirRates(t *testing.T) {
	of := func(connections uint64, perSecond *rate) []item {
		return []item{&service{port: plan.Service{Port: "http"}, Service: "web", Protocol: "TCP", Connections: connections, ConnectionsPerSecond: perSecond}}
	}
	var text strings.Builder
	f := newFollower(services.untyped(), &env{}, &text)
	for _, items := range [][]item{of(7, nil), of(9, new(rate(2))), of(9, new(rate(0)))} {
		if err := f.tell(items); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAMESPACE  SERVICE  PORT  ALGORITHM  READY  AVOIDED  CONNECTIONS  CONN/S  IN FLIGHT  REFUSED  REFUSED/S  FAILED
           web      TCP              -/0    0        7            -       0          0        -          0
           web      TCP              -/0    0        9            2.0     0          0        -          0
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
