package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An interval of 95 % holds the true value in about 95 of 100 experiments. With
// so few rounds the bootstrap of a median is known to be a little off.
func TestIntervalsHoldTheTruthAsOftenAsTheySay(t *testing.T) {
	const experiments, truth = 300, 1.2
	random := rand.New(rand.NewPCG(7, 8))
	rounds := func(n int, middle float64) []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = middle * math.Exp(0.1*random.NormFloat64())
		}
		return values
	}
	for _, tc := range []struct {
		name string
		of   func() Interval
	}{
		{"independent rounds", func() Interval { return RatioOfMedians(rounds(15, 100), rounds(21, 100*truth)) }},
		{"pairs", func() Interval {
			a := rounds(21, 100)
			b := rounds(21, truth)
			for i := range b {
				b[i] *= a[i] // a round disturbs both
			}
			return MedianOfRatios(a, b)
		}},
		{"a percentile of one run", func() Interval {
			h := NewHistogram()
			for range 2000 {
				h.Add(time.Duration(1e6 * random.ExpFloat64()))
			}
			i := h.PercentileInterval(90)
			scale := truth / (1e6 * math.Ln10) // the true p90 of the exponential distribution
			return Interval{i.Estimate * scale, i.Low * scale, i.High * scale}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			held := 0
			for range experiments {
				if !tc.of().Excludes(truth) {
					held++
				}
			}
			if share := 100 * held / experiments; share < 91 || share > 99 {
				t.Errorf("held in %d %% of experiments, want about 95", share)
			}
		})
	}
}

func TestPairsShowWhatNoiseHides(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	var a, b []float64
	for range 11 {
		weather := math.Exp(random.NormFloat64()) // larger than the difference
		a = append(a, weather*(1+0.01*random.NormFloat64()))
		b = append(b, weather*1.1*(1+0.01*random.NormFloat64()))
	}
	if i := MedianOfRatios(a, b); !i.Excludes(1) || i.Excludes(1.1) {
		t.Errorf("as pairs: %v, want it to hold 1.1 and not 1", i)
	}
	if i := RatioOfMedians(a, b); i.Excludes(1) {
		t.Errorf("as independent rounds: %v, want it to hold 1", i)
	}
}

func TestTheSlowestPercentileHasNoUpperBound(t *testing.T) {
	h := NewHistogram()
	for i := range 50 {
		h.Add(time.Duration(i+1) * time.Millisecond)
	}
	if i := h.PercentileInterval(99); !math.IsInf(i.High, 1) || i.Low < 40e6 || i.Low > 49.1e6 {
		t.Errorf("p99 of 50 samples: %v", i)
	}
	if i := NewHistogram().PercentileInterval(50); i != (Interval{}) {
		t.Errorf("p50 of nothing: %v", i)
	}
}

func TestMediansAndQuartiles(t *testing.T) {
	for _, tc := range []struct {
		values               []float64
		first, median, third float64
	}{
		{nil, 0, 0, 0},
		{[]float64{7}, 7, 7, 7},
		{[]float64{4, 1, 3, 2}, 1.75, 2.5, 3.25},
		{[]float64{5, 1, 4, 2, 3}, 2, 3, 4},
	} {
		first, third := Quartiles(tc.values)
		if diff := cmp.Diff([]float64{tc.first, tc.median, tc.third}, []float64{first, Median(tc.values), third}); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.values, diff)
		}
	}
}

// measured returns rounds of a measurement with known rates and latencies.
func measured(contender string, rounds int, perSecond, latency float64, random *rand.Rand) []Run {
	var runs []Run
	for round := range rounds {
		r := Run{
			Labels: map[string]string{"contender": contender, RoundLabel: fmt.Sprint(round)}, Load: Load{Kind: "rr", Loop: "closed"},
			Elapsed: time.Second, InTime: uint64(perSecond * (1 + 0.02*random.Float64())), Latency: NewHistogram(),
		}
		r.Due, r.Completed = r.InTime, r.InTime
		for range 5000 {
			r.Latency.Add(time.Duration(latency * random.ExpFloat64()))
		}
		runs = append(runs, r)
	}
	return runs
}

func TestAComparisonSaysWhatIsBetterAndWhatIsWorse(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	a := &Report{Meta: Meta{Kernel: "6.1"}, Runs: append(measured("x", 7, 10_000, 1e6, random), measured("old", 3, 1, 1, random)...)}
	b := &Report{Meta: Meta{Kernel: "6.12"}, Runs: append(measured("x", 5, 8_000, 0.5e6, random), measured("new", 3, 1, 1, random)...)}
	c := Compare(a, b)
	if len(c.Pairings) != 1 || c.Pairings[0].Title != "rr, closed loop, contender x" {
		t.Fatalf("compared %+v, want the one measurement that both have", c.Pairings)
	}
	if diff := cmp.Diff([][]string{{"rr, closed loop, contender old"}, {"rr, closed loop, contender new"}, {"kernel: 6.1, 6.12"}}, [][]string{c.OnlyA, c.OnlyB, c.Differences}); diff != "" {
		t.Errorf("the rest (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, ch := range c.Pairings[0].Changes {
		got[ch.Metric] = ch.Verdict + " by " + ch.How
	}
	want := map[string]string{
		"rate": "worse by rounds", "p50": "better by rounds", "p90": "better by rounds", "p99": "better by rounds",
		"failed": "no difference shown by rounds",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	same := Compare(a, a)
	for _, p := range same.Pairings {
		for _, ch := range p.Changes {
			if ch.Verdict != NoEvidence || ch.Ratio.Estimate != 1 {
				t.Errorf("%s beside itself: %s is %s, %v", p.Title, ch.Metric, ch.Verdict, ch.Ratio)
			}
		}
	}
}

func TestSingleRunsAreComparedByTheirSamples(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	a, b := measured("direct", 1, 10_000, 1e6, random), measured("tc", 1, 10_050, 1.5e6, random)
	c := Compare(&Report{Runs: a}, &Report{Runs: b})
	if len(c.Pairings) != 1 || !strings.Contains(c.Pairings[0].Title, "contender direct → ") {
		t.Fatalf("compared %+v, want the two runs whose labels differ", c.Pairings)
	}
	for _, ch := range c.Pairings[0].Changes {
		want := map[string]string{"rate": NoEvidence, "failed": NoEvidence}[ch.Metric]
		if want == "" {
			want = Worse
		}
		if ch.Verdict != want || ch.How != WithinRuns {
			t.Errorf("%s is %s by %s, %v, want %s %s", ch.Metric, ch.Verdict, ch.How, ch.Ratio, want, WithinRuns)
		}
		if ch.Metric == "p50" && (ch.Ratio.Excludes(1.5) || ch.Ratio.High-ch.Ratio.Low > 0.3) {
			t.Errorf("p50 is %v, want 1.5 within narrow bounds", ch.Ratio)
		}
	}
}

func TestAComparisonIsJSONAndATable(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	a, b := &Report{Runs: measured("x", 1, 100, 1e6, random)}, &Report{Runs: measured("x", 2, 100, 1e6, random)}
	b.Runs[0].Failed, b.Runs[0].Limited = 7, true // beside none in a: infinitely more
	c := Compare(a, b)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"metric":"p99","unit":"ns"`, `"ratio":{"estimate":`, `"how":"within runs"`, `"confidence":0.95`, `"limited_by_generator":true`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("JSON has no %s:\n%s", want, text)
		}
	}
	var table bytes.Buffer
	if err := c.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rr, closed loop, contender x\n", "  METRIC  A ", "within runs, 1 and 2", "× ∞", "LIMITED"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, table.String())
		}
	}
}
