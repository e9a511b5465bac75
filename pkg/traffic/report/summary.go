package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// Table is rows under a header.
type Table struct {
	Header []string
	Rows   [][]string
}

// summary returns a line for each measurement: medians of rounds, and of the
// rate the quartiles.
func summary(groups []result.Group) Table {
	t := Table{Header: []string{"measurement", "rounds", "rate", "quartiles", "p50", "p90", "p99", "p99.9", "failed"}}
	used := used(groups)
	for _, m := range used {
		t.Header = append(t.Header, useHeader[m.Name])
	}
	t.Header = append(t.Header, "generator")
	for _, g := range groups {
		rate, failed := result.Rate(), result.FailedShare()
		first, third := result.Quartiles(g.Values(rate))
		row := []string{g.Title, fmt.Sprint(len(g.Runs)), rateText(g, result.Median(g.Values(rate))), rateText(g, first) + " … " + rateText(g, third)}
		for _, p := range []float64{50, 90, 99, 99.9} {
			row = append(row, orDash(g, result.PercentileMetric(p)))
		}
		row = append(row, orDash(g, failed))
		for _, m := range used {
			row = append(row, orDash(g, m))
		}
		t.Rows = append(t.Rows, append(row, limitText(g)))
	}
	return t
}

func rateText(g result.Group, rate float64) string {
	if g.Runs[0].Load.Kind == "bulk" {
		return fmt.Sprintf("%.3f Gbit/s", rate*8/1e9)
	}
	return result.Rate().Text(rate)
}

// orDash is the median of a metric, or a dash where no round has it.
func orDash(g result.Group, m result.Metric) string {
	values := g.Values(m)
	if len(values) == 0 {
		return "–"
	}
	return m.Text(result.Median(values))
}

func limitText(g result.Group) string {
	limited := 0
	for _, r := range g.Runs {
		if r.Limited {
			limited++
		}
	}
	switch {
	case limited > 0:
		return fmt.Sprintf("limits %d of %d", limited, len(g.Runs))
	case g.Runs[0].Ceiling == nil:
		return "not known"
	}
	return "not limiting"
}

// beside compares each measurement with that of a base contender which did the same,
// in rounds that were interleaved. It returns no rows without contenders.
func beside(groups []result.Group, base string) Table {
	t := Table{Header: []string{"measurement", "beside", "metric", "×", "95 % interval", "so it is"}}
	bases := make(map[string]result.Group)
	for _, f := range facets(groups) {
		for _, s := range f.series {
			if s.name == base {
				bases[f.name] = s.group
			}
		}
	}
	for _, f := range facets(groups) {
		of, found := bases[f.name]
		if !found || f.name == "" {
			continue
		}
		for _, s := range f.series {
			if s.name == base {
				continue
			}
			for _, c := range result.CompareInterleaved(of, s.group) {
				if slices.Contains([]string{"rate", "p50", "p99", result.CPU().Name}, c.Metric) {
					t.Rows = append(t.Rows, []string{s.name + ", " + f.name, base, c.Metric, fmt.Sprintf("%.3f", c.Ratio.Estimate), c.Ratio.String(), c.Verdict})
				}
			}
		}
	}
	return t
}

// machineTable says where and when a report was made.
func machineTable(m result.Meta) Table {
	t := Table{Rows: [][]string{
		{"command", strings.Join(m.Command, " ")},
		{"when", m.Started.UTC().Format("2 January 2006, 15:04 UTC") + ", " + m.Ended.Sub(m.Started).Round(1e9).String() + " long"},
		{"CPU", fmt.Sprintf("%s, %d CPUs, %s", m.CPU, m.CPUs, m.Architecture)},
		{"kernel", m.Kernel},
		{"load average before, after", fmt.Sprintf("%s; %s", loads(m.LoadBefore), loads(m.LoadAfter))},
	}}
	for _, of := range []map[string]string{m.Versions, m.System} {
		for _, key := range sortedKeys(of) {
			t.Rows = append(t.Rows, []string{key, of[key]})
		}
	}
	return t
}

func loads(l [3]float64) string { return fmt.Sprintf("%.2f %.2f %.2f", l[0], l[1], l[2]) }
