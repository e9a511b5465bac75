package scenario

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const good = `
name: x
topology: node
contenders: [direct, other]
hooks: {other: {setup: "true"}}
services: [1, 10]
endpoints: 3
rounds: 3
load: {kind: crr, rate: 100, arrivals: poisson, fin: true, warm-up: 400ms, duration: 1s}
aims: [{contender: other, metric: p50, over: direct, at-most: 1.1}]
quick: {services: [1], rounds: 2, duration: 200ms}
`

func TestAScenarioIsRead(t *testing.T) {
	s, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	l := s.load()
	if s.Ask != "all" || l.Duration != time.Second || !l.Poisson || !l.FIN || l.WarmUp != 400*time.Millisecond || s.Hooks["other"].Setup != "true" {
		t.Errorf("read %+v with load %+v", s, l)
	}
	small := s.Small()
	if !slices.Equal(small.Services, []int{1}) || small.Rounds != 2 || small.Load.Duration != 200*time.Millisecond || small.Load.WarmUp != 100*time.Millisecond {
		t.Errorf("the small version is %+v", small)
	}
}

func TestWhatIsWrongWithAScenarioIsSaid(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{good, "", "it is empty"},
		{"name: x", "nome: x", "field nome not found"},
		{"name: x", "", "name is missing"},
		{"rounds: 3\n", "rounds: 0\n", "rounds is 0: it goes from 1 to 1000"},
		{"contenders: [direct, other]", "contenders: []", "contenders is empty: there are direct, "},
		{"contenders: [direct, other]", "contenders: [direct, moon, other]", `contender "moon": there are`},
		{"services: [1, 10]", "services: []", "services is empty"},
		{"topology: node", "topology: zones", "contenders are compared in node and pair"},
		{"topology: node", "topology: node\nask: some", `ask is "some": it is all or one`},
		{"kind: crr", "kind: udp", "ask is all: of udp write one"},
		{"kind: crr", "kind: crr, download: true", "load.download is of kind bulk, and this is crr"},
		{"arrivals: poisson", "arrivals: odd", `load.arrivals is "odd"`},
		{"metric: p50", "metric: p51", `metric "p51" is none`},
		{"over: direct", "over: sun", `over "sun" is not among contenders`},
		{"over: direct", "over: direct, over-services: 1", "over, over-services, over-fewest-endpoints and over-churn exclude each other"},
		{"at-most: 1.1", "at-most: 1.1, at-least: 1", "write at-most or at-least"},
		{"contender: other", "contender: sun", `contender "sun" is not among contenders`},
		{"duration: 1s", "duration: soon", "cannot unmarshal"},
	} {
		_, err := parse([]byte(strings.Replace(good, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: error is %v, want one line with %q", tc.new, tc.old, err, tc.want)
		}
	}
}

func TestTheScenariosOfTheRepositoryAreRead(t *testing.T) {
	files, err := filepath.Glob("../../../tests/bench/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no scenarios: %v", err)
	}
	for _, file := range files {
		s, err := ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := s.load().Validate(); !strings.Contains(fmt.Sprint(err), "no target") { // all else comes after it, or is well
			t.Errorf("%s: %v", file, err)
		}
		if len(s.Aims) == 0 || s.Quick.Duration == 0 || s.Text == "" {
			t.Errorf("%s has no aims, no quick version or no text", file)
		}
	}
}

// rounds returns runs with known latencies.
func rounds(contender string, services int, ms ...float64) []result.Run {
	var runs []result.Run
	for i, m := range ms {
		r := result.Run{
			Labels:  map[string]string{report.ContenderLabel: contender, report.ServicesLabel: fmt.Sprint(services), "topology": "", result.RoundLabel: fmt.Sprint(i)},
			Latency: result.NewHistogram(), Elapsed: time.Second, Due: 100, InTime: 100, Completed: 100,
		}
		for range 100 {
			r.Latency.Add(time.Duration(math.Round(m * 1e6)))
		}
		runs = append(runs, r)
	}
	return runs
}

func TestAimsAreMetOrMissed(t *testing.T) {
	runs := slices.Concat(rounds("direct", 1, 10, 20, 30), rounds("hg", 1, 11, 22, 33), rounds("hg", 9, 22, 44, 66))
	runs[3].Failed = 1
	s := Scenario{Services: []int{1, 9}, Endpoints: []int{3}, Family: []string{IPv4}, Aims: []Aim{
		{Contender: "hg", Services: 1, Metric: "p50", Over: "direct", AtMost: 1.2},
		{Contender: "hg", Services: 1, Metric: "p50", Over: "direct", AtMost: 1.05},
		{Contender: "hg", Metric: "p50", OverServices: 1, AtMost: 1.5},
		{Contender: "hg", Services: 1, Metric: "p50", AtMost: 30e6},
		{Contender: "hg", Services: 1, Metric: "rate", Over: "direct", AtLeast: 1},
		{Contender: "hg", Services: 1, Metric: "rate", AtLeast: 101},
		{Contender: "hg", Services: 1, Metric: "failed"},
		{Contender: "hg", Metric: "p50", Over: "direct", AtMost: 9},
	}}
	want := []report.Aim{
		{What: "p50 of hg, 1 Service, over direct", AtMost: "× 1.200", Measured: "× 1.100 (× 1.100 … × 1.100)", Met: true},
		{What: "p50 of hg, 1 Service, over direct", AtMost: "× 1.050", Measured: "× 1.100 (× 1.100 … × 1.100)"},
		{What: "p50 of hg, 9 Services, over 1 Service", AtMost: "× 1.500", Measured: "× 2.000 (× 2.000 … × 2.000)"},
		{What: "p50 of hg, 1 Service", AtMost: "30ms", Measured: "22ms (11ms … 33ms)", Met: true},
		{What: "rate of hg, 1 Service, over direct (at least)", AtMost: "× 1.000", Measured: "× 1.000 (× 1.000 … × 1.000)", Met: true},
		{What: "rate of hg, 1 Service (at least)", AtMost: "101/s", Measured: "100/s (100/s … 100/s)"},
		{What: "failed of hg, 1 Service", AtMost: "0.000 %", Measured: "0.333 %"},
		{What: "p50 of hg, 9 Services, over direct", AtMost: "× 9.000", Measured: "not measured"},
	}
	if diff := cmp.Diff(want, s.Results(runs)); diff != "" {
		t.Errorf("aims (-want +got):\n%s", diff)
	}
}
