package result

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAHistogramIsExactToThreeDigits(t *testing.T) {
	h := NewHistogram()
	samples := make([]time.Duration, 0, 100_000)
	random := rand.New(rand.NewPCG(1, 2))
	for range cap(samples) {
		d := time.Duration(math.Exp(random.NormFloat64()*2) * 50e3) // 50 µs, and a long tail
		samples = append(samples, d)
		h.Add(d)
	}
	slices.Sort(samples)
	for _, p := range percentiles {
		want := samples[int(math.Ceil(p*float64(len(samples))/100))-1]
		if got := h.Percentile(p); math.Abs(float64(got-want)) > 0.001*float64(want)+1 {
			t.Errorf("p%v is %s, want %s to three digits", p, got, want)
		}
	}
}

func TestMergedHistogramsHaveThePercentilesOfAllSamples(t *testing.T) {
	all, left, right := NewHistogram(), NewHistogram(), NewHistogram()
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 50_000 {
		d := time.Duration(random.ExpFloat64() * 1e6)
		part := left
		if i%7 == 0 {
			part, d = right, d+20*time.Millisecond // the parts differ
		}
		part.Add(d)
		all.Add(d)
	}
	left.Merge(right)
	left.Merge(nil)
	if diff := cmp.Diff(all.Buckets(), left.Buckets()); diff != "" {
		t.Errorf("merged (-all +merged):\n%s", diff)
	}
	if all.Percentile(99.9) != left.Percentile(99.9) || all.Count() != left.Count() {
		t.Errorf("p99.9 %s of %d, want %s of %d", left.Percentile(99.9), left.Count(), all.Percentile(99.9), all.Count())
	}
}

func TestWhatIsOutOfBoundsStaysInTheHistogram(t *testing.T) {
	h := NewHistogram()
	h.Add(-time.Second)
	h.Add(time.Hour)
	if h.Count() != 2 || h.Max() < Longest || h.Min() != 0 {
		t.Errorf("%d samples from %s to %s, want 2 from 0 to at least %s", h.Count(), h.Min(), h.Max(), Longest)
	}
}

func TestFairnessOfKnownDistributions(t *testing.T) {
	for _, tc := range []struct {
		name      string
		choices   []uint64
		maxOver   float64
		chiSquare float64
		p         float64 // from tables of the distribution
	}{
		{"equal shares", []uint64{100, 100, 100, 100}, 1, 0, 1},
		{"one backend", []uint64{7}, 1, 0, 1},
		{"the 5 % point of one degree of freedom", []uint64{1098, 902}, 1.098, 19.208, 1.17e-5},
		{"a fair die of 60 throws", []uint64{5, 8, 9, 8, 10, 20}, 2, 13.4, 0.01991},
		{"one backend has nothing", []uint64{30, 30, 0}, 1.5, 30, 3.06e-7},
		{"close to even", []uint64{52, 48}, 1.04, 0.16, 0.6892},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := NewFairness(tc.choices)
			near(t, "max/mean", f.MaxOverMean, tc.maxOver, 1e-9)
			near(t, "chi-square", f.ChiSquare, tc.chiSquare, 1e-9)
			near(t, "p", f.P, tc.p, 0.005*tc.p)
		})
	}
	if f := NewFairness([]uint64{0, 0}); f != nil {
		t.Errorf("fairness of no choices is %v, want none", f)
	}
}

// The 95 % points of the distribution, as in every table of it.
func TestChiSquareAgreesWithTables(t *testing.T) {
	for degrees, point := range map[float64]float64{1: 3.841, 2: 5.991, 5: 11.070, 10: 18.307, 30: 43.773, 100: 124.342, 999: 1073.643} {
		near(t, "p", upperGamma(degrees/2, point/2), 0.05, 2e-5)
	}
}

func TestRandomChoicesAreSeldomUnfair(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	below := 0
	for range 1000 {
		choices := make([]uint64, 10)
		for range 1000 {
			choices[random.IntN(10)]++
		}
		if NewFairness(choices).P < 0.05 {
			below++
		}
	}
	if below < 30 || below > 75 {
		t.Errorf("%d of 1000 experiments have p < 0.05, want about 50", below)
	}
}

func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > slack {
		t.Errorf("%s is %v, want %v ± %v", what, got, want, slack)
	}
}

// example is a run with something in every field.
func example() Run {
	r := Run{
		Name: "connect", Labels: map[string]string{"contender": "direct"},
		Load: Load{
			Kind: "connect", Loop: "open", Rate: 2000, Arrivals: "poisson", Targets: []string{"192.0.2.1:80"}, Sources: []string{"10.0.0.0/24"},
			Connections: 64, Senders: 2, PerSocket: 1, Request: 64, Response: 128, Timeout: time.Second, WarmUp: time.Second, Duration: 5 * time.Second,
		},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Elapsed: 5 * time.Second, Interrupted: true,
		Due: 10_000, Completed: 9_990, InTime: 9_990, Failed: 10, Errors: map[ErrorKind]uint64{Refused: 4, Timeout: 6},
		ErrorExamples: map[ErrorKind]string{Refused: "connection refused"}, Broken: 3,
		Bytes: Bytes{Sent: 1, Received: 2}, Packets: &Packets{Sent: 100, Received: 80, Unknown: 10, Senders: 4, Reports: 3},
		Latency: NewHistogram(), Service: NewHistogram(), Lateness: NewHistogram(),
		Interval: time.Second, TimeLine: []Point{{At: time.Second, Due: 2, Completed: 1, Failed: 1, Broken: 1, Bytes: 9, P50: 1, P99: 2, Max: 3}},
		Events: []Event{{At: time.Second, Took: time.Millisecond, Name: "kill", Detail: "ok"}}, CPU: time.Second,
	}
	r.Latency.Add(150 * time.Microsecond)
	r.Service.Add(100 * time.Microsecond)
	r.Lateness.Add(50 * time.Microsecond)
	r.SetBackends(map[string]Backend{"b": {Name: "b", Choices: 4000, Answers: 4000}, "a": {Name: "a", Choices: 6000, Answers: 6000}})
	return r
}

var histograms = cmp.Comparer(func(a, b *Histogram) bool {
	return (a == nil) == (b == nil) && (a == nil || cmp.Equal(a.Buckets(), b.Buckets()))
})

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{"/usr/bin/headgate-bench", "-o", path, "--path", "/healthz"}
	report := NewReport(Collect(command, map[string]string{"headgate": "v1"}))
	report.Runs = []Run{example()}
	if err := report.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	read, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, read, histograms); diff != "" {
		t.Errorf("report (-written +read):\n%s", diff)
	}
	if got := strings.Join(read.Meta.Command, " "); got != "headgate-bench -o r.json --path /healthz" || read.Meta.Kernel == "" || read.Meta.CPUs == 0 {
		t.Errorf("meta is %+v", read.Meta)
	}
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "read report: EOF",
		`{"schema":"headgate.bench/9"}`: `schema is "headgate.bench/9", this version reads "headgate.bench/1"`,
		`{"schema":"headgate.bench/1","runs":[{"latency":{"buckets_up_to_ns":[1],"buckets_count":[]}}]}`:   "1 buckets_up_to_ns, but 0 buckets_count",
		`{"schema":"headgate.bench/1","runs":[{"latency":{"buckets_up_to_ns":[-1],"buckets_count":[1]}}]}`: "bucket up to -1 ns",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%q) gives %v, want %q in it", text, err, want)
		}
	}
}

func TestPooledRunsAddUp(t *testing.T) {
	one, two := example(), example()
	two.Latency.Add(time.Millisecond)
	two.Errors = map[ErrorKind]uint64{Reset: 1}
	p := Pool(one, two)
	if p.Due != 20_000 || p.Elapsed != 10*time.Second || p.Latency.Count() != 3 || p.Packets.Received != 160 {
		t.Errorf("pool is %+v", p)
	}
	if diff := cmp.Diff(map[ErrorKind]uint64{Refused: 4, Timeout: 6, Reset: 1}, p.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if p.Fairness.Choices != 20_000 || p.Backends[0] != (Backend{Name: "a", Choices: 12_000, Answers: 12_000}) {
		t.Errorf("fairness is %v of %v", p.Fairness, p.Backends)
	}
	if one.Latency.Count() != 1 {
		t.Error("pooling has changed what it pooled")
	}
}

func TestAResultNearTheCeilingIsMarked(t *testing.T) {
	r := example()
	r.Packets = nil
	for ceiling, limited := range map[float64]bool{1998 / 0.79: false, 1998 / 0.81: true} {
		r.SetCeiling(Ceiling{PerSecond: ceiling})
		if r.Limited != limited {
			t.Errorf("%v/s of %v/s is limited: %t, want %t", r.PerSecond(), ceiling, r.Limited, limited)
		}
	}
}

func TestTheTableSaysWhatCounts(t *testing.T) {
	r := example()
	r.SetCeiling(Ceiling{PerSecond: 10, How: "loopback"})
	var text bytes.Buffer
	if err := (&Report{Meta: Meta{CPU: "x"}, Runs: []Run{r}}).WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"connect, contender direct (interrupted", "open loop, 2,000/s poisson", "16 packets/s received", "p99.99 150µs",
		"4 refused (connection refused), 6 timeout", "3 established connections lost", "11.111 % lost", "a 6000, b 4000",
		"max/mean 1.200, chi-square 400.0 with 1 degrees of freedom", "at 1s: kill (1ms) ok", "LIMITED",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text.String())
		}
	}
}

func TestHistogramJSONHasUnitsAndPercentiles(t *testing.T) {
	h := NewHistogram()
	h.Add(time.Millisecond)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"count":1`, `"p99.99":1000447`, `"buckets_up_to_ns":[1000447]`, `"buckets_count":[1]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("JSON has no %s: %s", want, text)
		}
	}
}
