package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// drillTable says what came of drills: medians of rounds with their quartiles, and
// counts of all rounds together. It has no rows without drills.
func drillTable(groups []result.Group) Table {
	t := Table{Header: []string{"measurement", "event", "last to the old one", "first to the new one", "failed", "the last after", "slow", "broken"}}
	for _, g := range groups {
		g.Runs = slices.DeleteFunc(slices.Clone(g.Runs), func(r result.Run) bool { return r.Drill == nil })
		if len(g.Runs) == 0 {
			continue
		}
		row := []string{shortTitle(g), g.Runs[0].Drill.Kind}
		pooled := result.Group{Runs: []result.Run{g.Pooled()}}
		for _, m := range drillColumns() {
			values := g.Values(m)
			switch {
			case m.Total:
				row = append(row, fmt.Sprintf("%s in %s", m.Text(pooled.Values(m)[0]), rounds(len(g.Runs))))
			case len(values) == 0:
				row = append(row, "–")
			default:
				first, third := result.Quartiles(values)
				row = append(row, fmt.Sprintf("%s (%s … %s)", m.Text(result.Median(values)), m.Text(first), m.Text(third)))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// drillColumns are the metrics of a drill in the order of the table.
func drillColumns() []result.Metric {
	all := result.DrillMetrics()
	var columns []result.Metric
	for _, name := range []string{"last-old", "first-new", "failures", "last-failed", "slow", "broken"} {
		columns = append(columns, all[slices.IndexFunc(all, func(m result.Metric) bool { return m.Name == name })])
	}
	return columns
}

// churnTable says how many changes there were. It has no rows without any.
func churnTable(groups []result.Group) Table {
	t := Table{Header: []string{"measurement", "changes a second", "of those asked for"}}
	for _, g := range groups {
		var made []float64
		asked := 0.0
		for _, r := range g.Runs {
			if r.Churn != nil {
				made, asked = append(made, r.Churn.PerSecond()), r.Churn.Rate
			}
		}
		if len(made) > 0 {
			median := result.Median(made)
			t.Rows = append(t.Rows, []string{shortTitle(g), fmt.Sprintf("%.1f", median), fmt.Sprintf("%.1f %%", 100*median/asked)})
		}
	}
	return t
}

// shortTitle is what tells a measurement from the others of a scenario.
func shortTitle(g result.Group) string {
	parts := []string{g.Labels[ContenderLabel]}
	for _, label := range []string{ServicesLabel, EndpointsLabel, FamilyLabel, ChurnLabel} {
		if value, ok := g.Labels[label]; ok {
			parts = append(parts, label+" "+value)
		}
	}
	if parts[0] == "" {
		return g.Title
	}
	return strings.Join(parts, ", ")
}

// drillFigures draws what became of clients around an event, a line for each contender.
func drillFigures(f facet) []Figure {
	if !slices.ContainsFunc(f.series, func(s series) bool { return s.group.Runs[0].Drill != nil }) {
		return nil
	}
	failures := newPlot("Failures around the event"+f.suffix(), "seconds", "failed operations a second")
	failures.Y.Tick.Marker = counts{}
	latency := newPlot("Latency around the event"+f.suffix(), "seconds", "99th percentile of latency")
	low, high, seconds := math.Inf(1), 1.0, 0.0
	for i, s := range f.series {
		failed, p99 := overTime(s.group.Runs)
		addLine(failures, i, s.name, failed)
		addLine(latency, i, s.name, p99)
		for _, point := range failed {
			failures.Y.Max, seconds = max(failures.Y.Max, point.Y), max(seconds, point.X)
		}
		for _, point := range p99 {
			low, high = min(low, point.Y), max(high, point.Y)
		}
	}
	failures.Y.Min, failures.Y.Max = 0, max(failures.Y.Max*1.3, 1)
	durationAxis(&latency.Y, min(low, high)/1.5, high*3)
	for _, p := range []*plot.Plot{failures, latency} {
		p.X.Min, p.X.Max, p.Legend.Top = 0, seconds, true
		for _, e := range f.series[0].group.Runs[0].Events {
			p.Add(event{at: e.At.Seconds(), name: shorten(e.Name, 40)})
		}
	}
	caption := "Lower is better. By intervals of " + f.series[0].group.Runs[0].Interval.String() + ". Vertical lines are what happens."
	figures := []Figure{{
		Name: fileName("drill", "failures", f.name), Title: failures.Title.Text, plot: failures,
		Caption: caption + " Means of rounds; an operation without an answer fails one timeout after it began.",
	}}
	if !math.IsInf(low, 1) {
		figures = append(figures, Figure{
			Name: fileName("drill", "latency", f.name), Title: latency.Title.Text, plot: latency,
			Caption: caption + " Medians of rounds, of the operations that were due in each interval and did not fail.",
		})
	}
	return figures
}

// overTime returns the failures of a second and the 99th percentile of latency by
// intervals: of failures the mean of all runs, of latencies the median.
func overTime(runs []result.Run) (failed, p99 plotter.XYs) {
	longest := runs[0]
	for _, r := range runs {
		if len(r.TimeLine) > len(longest.TimeLine) {
			longest = r
		}
	}
	for i, point := range longest.TimeLine {
		sum, latencies := 0.0, []float64(nil)
		for _, r := range runs {
			if i < len(r.TimeLine) {
				sum += float64(r.TimeLine[i].Failed)
				if v := r.TimeLine[i].P99; v > 0 {
					latencies = append(latencies, float64(v))
				}
			}
		}
		failed = append(failed, plotter.XY{X: point.At.Seconds(), Y: sum / float64(len(runs)) / longest.Interval.Seconds()})
		if len(latencies) > 0 {
			p99 = append(p99, plotter.XY{X: point.At.Seconds(), Y: result.Median(latencies)})
		}
	}
	return failed, p99
}
