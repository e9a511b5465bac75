package result

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// How an interval came about.
const (
	// ByRounds: by a bootstrap over the rounds of both sides.
	ByRounds = "rounds"
	// ByPairs: the same over pairs, since the rounds of both were interleaved.
	ByPairs = "paired rounds"
	// WithinRuns: from the samples within the runs, since rounds are too few.
	// It says nothing of how runs differ from each other.
	WithinRuns = "within runs"
)

// Verdicts of a Change.
const (
	Better     = "better"
	Worse      = "worse"
	NoEvidence = "no difference shown"
)

// Change is what became of one metric, from a to b.
type Change struct {
	Metric string  `json:"metric"`
	Unit   string  `json:"unit"`
	A      float64 `json:"a"` // medians of the rounds
	B      float64 `json:"b"`
	// Ratio is B by A. JSON has no infinity: a bound without limit is absent.
	Ratio   Interval `json:"ratio"`
	How     string   `json:"how"`
	RoundsA int      `json:"rounds_a"`
	RoundsB int      `json:"rounds_b"`
	Verdict string   `json:"verdict"`
	text    func(float64) string
}

// MarshalJSON leaves infinite values out.
func (i Interval) MarshalJSON() ([]byte, error) {
	values := make(map[string]float64)
	for name, v := range map[string]float64{"estimate": i.Estimate, "low": i.Low, "high": i.High} {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			values[name] = v
		}
	}
	return json.Marshal(values)
}

// Pairing is one measurement that both sides have.
type Pairing struct {
	Title   string   `json:"title"`
	Changes []Change `json:"changes"`
	// Limited says that the generator limited one of the sides.
	Limited bool `json:"limited_by_generator"`
}

// Comparison is one report beside another one.
type Comparison struct {
	Confidence float64   `json:"confidence"`
	Pairings   []Pairing `json:"comparisons"`
	OnlyA      []string  `json:"only_in_a,omitempty"`
	OnlyB      []string  `json:"only_in_b,omitempty"`
	// Differences are what else differs between the reports: kernel, CPU.
	Differences []string `json:"differences,omitempty"`
}

// Compare compares the measurements that two reports share. If they share none
// but have one each, these are compared: their labels say what differs.
func Compare(a, b *Report) Comparison {
	c := Comparison{Confidence: Confidence, Differences: differences(a.Meta, b.Meta)}
	ga, gb := Groups(a.Runs), Groups(b.Runs)
	if len(ga) == 1 && len(gb) == 1 {
		title := ga[0].Title
		if gb[0].Title != title {
			title += " → " + gb[0].Title
		}
		c.Pairings = []Pairing{pair(title, ga[0], gb[0], false)}
		return c
	}
	of := make(map[string]Group)
	for _, g := range gb {
		of[g.Title] = g
	}
	for _, g := range ga {
		if other, shared := of[g.Title]; shared {
			c.Pairings = append(c.Pairings, pair(g.Title, g, other, false))
			delete(of, g.Title)
			continue
		}
		c.OnlyA = append(c.OnlyA, g.Title)
	}
	c.OnlyB = slices.Sorted(maps.Keys(of))
	return c
}

// CompareInterleaved compares two measurements of one run whose rounds were
// interleaved.
func CompareInterleaved(a, b Group) []Change { return pair("", a, b, true).Changes }

func pair(title string, a, b Group, interleaved bool) Pairing {
	p := Pairing{Title: title}
	for _, m := range Metrics() {
		if c, ok := change(m, a, b, interleaved); ok {
			p.Changes = append(p.Changes, c)
		}
	}
	for _, m := range DrillMetrics() {
		// A round is one sample of when something took effect, and counts of
		// failures are those of all rounds: see the report.
		if min(len(a.Runs), len(b.Runs)) < minRounds || m.Total {
			continue
		}
		if c, ok := change(m, a, b, interleaved); ok && !math.IsInf(c.A+c.B, 0) {
			p.Changes = append(p.Changes, c)
		}
	}
	limited := func(r Run) bool { return r.Limited }
	p.Limited = slices.ContainsFunc(a.Runs, limited) || slices.ContainsFunc(b.Runs, limited)
	return p
}

// change compares one metric, and is not ok if a side does not have it.
func change(m Metric, a, b Group, interleaved bool) (Change, bool) {
	va, vb := a.Values(m), b.Values(m)
	if len(va) == 0 || len(vb) == 0 {
		return Change{}, false
	}
	c := Change{Metric: m.Name, Unit: m.Unit, A: Median(va), B: Median(vb), RoundsA: len(va), RoundsB: len(vb), text: m.Text}
	switch {
	case min(len(va), len(vb)) < minRounds:
		c.How, c.Ratio = WithinRuns, withinRuns(m, a, b)
	case interleaved && len(va) == len(vb):
		c.How, c.Ratio = ByPairs, MedianOfRatios(va, vb)
	default:
		c.How, c.Ratio = ByRounds, RatioOfMedians(va, vb)
	}
	c.Verdict = verdict(m, c.Ratio)
	return c, true
}

func verdict(m Metric, i Interval) string {
	switch {
	case !i.Excludes(1):
		return NoEvidence
	case (i.Low > 1) == m.MoreIsBetter:
		return Better
	}
	return Worse
}

// withinRuns returns the ratio from the samples of the runs. The relative widths
// of both sides add as squares, on the scale of logarithms.
func withinRuns(m Metric, a, b Group) Interval {
	ia, ib := m.within(a.Pooled()), m.within(b.Pooled())
	estimate := ratio(ia.Estimate, ib.Estimate)
	if ia.Estimate <= 0 || ib.Estimate <= 0 {
		return Interval{Estimate: estimate, Low: 0, High: math.Inf(1)}
	}
	down := math.Hypot(math.Log(ib.Estimate/ib.Low), math.Log(ia.High/ia.Estimate))
	up := math.Hypot(math.Log(ib.High/ib.Estimate), math.Log(ia.Estimate/ia.Low))
	return Interval{Estimate: estimate, Low: estimate * math.Exp(-down), High: estimate * math.Exp(up)}
}

// within returns a metric of one run with the bounds that its samples give. Of
// counts they are those of Poisson's distribution.
func (m Metric) within(r Run) Interval {
	if m.percentile > 0 && r.Latency != nil {
		return r.Latency.PercentileInterval(m.percentile)
	}
	value, _ := m.of(&r)
	if m.unsampled {
		return Interval{Estimate: value, Low: 0, High: math.Inf(1)}
	}
	count := float64(r.Done())
	if !m.MoreIsBetter {
		count = float64(r.Failed)
	}
	half := z / math.Sqrt(max(count, 1))
	return Interval{Estimate: value, Low: value * math.Exp(-half), High: value * math.Exp(half)}
}

func duration(ns float64) time.Duration { return time.Duration(math.Round(ns)) }

// differences are what decides figures besides what is compared.
func differences(a, b Meta) []string {
	var list []string
	add := func(what, a, b string) {
		if a != b {
			list = append(list, fmt.Sprintf("%s: %s, %s", what, orUnknown(a), orUnknown(b)))
		}
	}
	add("kernel", a.Kernel, b.Kernel)
	add("CPU", a.CPU, b.CPU)
	add("CPUs", fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs))
	for _, of := range [][2]map[string]string{{a.Versions, b.Versions}, {a.System, b.System}} {
		names := maps.Clone(of[0])
		if names == nil {
			names = make(map[string]string)
		}
		maps.Copy(names, of[1])
		for _, name := range slices.Sorted(maps.Keys(names)) {
			add(name, of[0][name], of[1][name])
		}
	}
	return list
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// WriteTable writes a comparison for people.
func (c Comparison) WriteTable(w io.Writer) error {
	for _, d := range c.Differences {
		fmt.Fprintf(w, "differs: %s\n", d)
	}
	for _, p := range c.Pairings {
		fmt.Fprintf(w, "%s\n", p.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  METRIC\tA\tB\tB BY A\t95 % INTERVAL\tSO B IS\tFROM")
		for _, ch := range p.Changes {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", ch.Metric, ch.text(ch.A), ch.text(ch.B), times(ch.Ratio.Estimate),
				ch.Ratio.String(), ch.Verdict, ch.from())
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		if p.Limited {
			fmt.Fprintln(w, "  LIMITED: the generator was near to its ceiling on a side, see bench show")
		}
		fmt.Fprintln(w)
	}
	for _, title := range c.OnlyA {
		fmt.Fprintf(w, "only in a: %s\n", title)
	}
	for _, title := range c.OnlyB {
		fmt.Fprintf(w, "only in b: %s\n", title)
	}
	return nil
}

// String is the bounds.
func (i Interval) String() string { return times(i.Low) + " … " + times(i.High) }

func (c Change) from() string {
	if c.RoundsA == c.RoundsB {
		return fmt.Sprintf("%s, %d", c.How, c.RoundsA)
	}
	return fmt.Sprintf("%s, %d and %d", c.How, c.RoundsA, c.RoundsB)
}

func times(ratio float64) string {
	if math.IsInf(ratio, 1) {
		return "× ∞"
	}
	return fmt.Sprintf("× %.3f", ratio)
}
