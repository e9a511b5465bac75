package result

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// RoundLabel is the label that tells the rounds of one measurement apart.
const RoundLabel = "round"

// Group is the rounds of one measurement: runs that differ in their round only.
type Group struct {
	Title  string // the name of the runs, what they do, and their labels
	Labels map[string]string
	Runs   []Run
}

// Groups puts the rounds of each measurement together, measurements in the
// order in which they come first.
func Groups(runs []Run) []Group {
	var groups []Group
	index := make(map[string]int)
	for _, run := range runs {
		title := run.groupTitle()
		i, known := index[title]
		if !known {
			labels := maps.Clone(run.Labels)
			delete(labels, RoundLabel)
			i, index[title] = len(groups), len(groups)
			groups = append(groups, Group{Title: title, Labels: labels})
		}
		groups[i].Runs = append(groups[i].Runs, run)
	}
	return groups
}

// groupTitle says what a run is, but for its round: two runs with the same one
// measured the same.
func (r *Run) groupTitle() string {
	parts := []string{cmp.Or(r.Name, r.Load.Kind)}
	if r.Name != "" && !strings.Contains(r.Name, r.Load.Kind) {
		parts = append(parts, r.Load.Kind)
	}
	if r.Load.Download {
		parts = append(parts, "download")
	}
	if r.Load.Loop == "open" {
		parts = append(parts, fmt.Sprintf("%s/s %s", number(r.Load.Rate), r.Load.Arrivals))
	} else {
		parts = append(parts, "closed loop")
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if key != RoundLabel {
			parts = append(parts, key+" "+r.Labels[key])
		}
	}
	return strings.Join(parts, ", ")
}

// Pooled returns the rounds as one run: see Pool.
func (g Group) Pooled() Run { return Pool(g.Runs...) }

// Values returns a metric of each round that has it.
func (g Group) Values(m Metric) []float64 {
	var values []float64
	for i := range g.Runs {
		if v, ok := m.of(&g.Runs[i]); ok {
			values = append(values, v)
		}
	}
	return values
}

// Metric is a number that a run has.
type Metric struct {
	Name string // such as "p99"
	Unit string // such as "ns"
	// MoreIsBetter is true of rates, false of times and errors.
	MoreIsBetter bool
	// Total says that it is of all rounds together: a median would forget what
	// happened in few of them.
	Total      bool
	percentile float64 // of latency, 0: none
	unsampled  bool    // a run says nothing of how far it is to be trusted
	of         func(*Run) (float64, bool)
}

// Rate, FailedShare and PercentileMetric are what runs are compared by.
func Rate() Metric {
	return Metric{Name: "rate", Unit: "/s", MoreIsBetter: true, of: func(r *Run) (float64, bool) { return r.PerSecond(), true }}
}

// FailedShare is the share of due operations that failed, in percent.
func FailedShare() Metric {
	return Metric{Name: "failed", Unit: "%", Total: true, of: func(r *Run) (float64, bool) {
		if r.Due == 0 {
			return 0, false
		}
		return 100 * float64(r.Failed) / float64(r.Due), true
	}}
}

// PercentileMetric is a percentile of latency, in nanoseconds. A run has it if
// so many operations are beyond that it is not the slowest of them alone.
func PercentileMetric(p float64) Metric {
	const beyond = 10
	return Metric{Name: fmt.Sprintf("p%v", p), Unit: "ns", percentile: p, of: func(r *Run) (float64, bool) {
		if r.Latency == nil || float64(r.Latency.Count())*(1-p/100) < beyond {
			return 0, false
		}
		return float64(r.Latency.Percentile(p)), true
	}}
}

// Metrics are those that runs are compared by.
func Metrics() []Metric {
	metrics := []Metric{Rate()}
	for _, p := range []float64{50, 90, 99, 99.9, 99.99} {
		metrics = append(metrics, PercentileMetric(p))
	}
	return append(metrics, FailedShare(), CPU(), ClientCPU(), MachineCPU(), ProgramTime())
}

// Text is a value of the metric for people.
func (m Metric) Text(value float64) string {
	switch {
	case math.IsInf(value, 1):
		return "never"
	case m.Unit == "ns":
		return short(duration(value))
	case m.Unit == "%":
		return fmt.Sprintf("%.3f %%", value)
	}
	return number(value) + m.Unit
}
