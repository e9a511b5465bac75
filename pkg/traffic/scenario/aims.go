package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// Results returns what the aims have come to. One that was not measured is not
// met.
func (s Scenario) Results(runs []result.Run) []report.Aim {
	groups := result.Groups(runs)
	var aims []report.Aim
	for _, a := range s.Aims {
		aims = append(aims, s.result(a, groups))
	}
	return aims
}

func (s Scenario) result(a Aim, groups []result.Group) report.Aim {
	c, churn := s.aimedAt(a), churnLabel(s.Churn, a.Churn)
	metric, _ := metricNamed(a.Metric)
	out := report.Aim{What: fmt.Sprintf("%s of %s, %s", a.Metric, a.Contender, s.circumstances(c)+withChurn(churn)), Measured: "not measured"}
	of := s.values(groups, c, churn, metric)
	bound, text := a.AtMost, metric.Text
	over := []float64(nil)
	switch {
	case a.Over != "":
		out.What += ", over " + a.Over
		other := c
		other.Contender = a.Over
		over, text = s.values(groups, other, churn, metric), timesText
	case a.OverServices != 0:
		out.What += ", over " + manyServices(a.OverServices)
		other := c
		other.Services = a.OverServices
		over, text = s.values(groups, other, churn, metric), timesText
	case a.OverFewest:
		other := c
		other.Endpoints = slices.Min(s.Endpoints)
		out.What += fmt.Sprintf(", over %d endpoints", other.Endpoints)
		over, text = s.values(groups, other, churn, metric), timesText
	case a.OverChurn != nil:
		before := churnLabel(s.Churn, a.OverChurn)
		out.What += ", over" + strings.TrimPrefix(withChurn(before), ",")
		over, text = s.values(groups, c, before, metric), timesText
	default:
		over = ones(len(of))
	}
	if a.AtLeast != 0 {
		bound = a.AtLeast
		out.What += " (at least)"
	}
	out.AtMost = text(bound)
	if len(of) == 0 || len(over) == 0 {
		return out
	}
	i := result.MedianOfRatios(over, of)
	out.Measured = text(i.Estimate)
	if len(of) >= 3 {
		out.Measured += fmt.Sprintf(" (%s … %s)", text(i.Low), text(i.High))
	}
	out.Met = i.Estimate <= bound
	if a.AtLeast != 0 {
		out.Met = i.Estimate >= bound
	}
	return out
}

// aimedAt is the case of an aim: unless it says otherwise, the largest that it can
// be said of.
func (s Scenario) aimedAt(a Aim) Case {
	c := Case{Contender: a.Contender, Services: a.Services, Endpoints: a.Endpoints, Family: a.Family}
	if c.Family == "" {
		c.Family = s.Family[0]
	}
	if c.Endpoints == 0 {
		c.Endpoints = slices.Max(s.Endpoints)
	}
	if c.Services == 0 {
		for _, n := range s.Services {
			if s.has(a.Contender, n) && s.has(a.Over, n) {
				c.Services = max(c.Services, n)
			}
		}
	}
	return c
}

// circumstances are those of a case, as far as the scenario has several.
func (s Scenario) circumstances(c Case) string {
	text := manyServices(c.Services)
	if len(s.Endpoints) > 1 {
		text += fmt.Sprintf(" of %d endpoints", c.Endpoints)
	}
	if len(s.Family) > 1 {
		text += ", " + c.Family
	}
	return text
}

// values are those of the rounds of a case, in their order. Of a total it is that
// of all rounds together.
func (s Scenario) values(groups []result.Group, c Case, churn string, m result.Metric) []float64 {
	for _, g := range groups {
		if maps.Equal(g.Labels, s.labels(c, churn)) {
			if m.Total {
				g.Runs = []result.Run{g.Pooled()}
			}
			return g.Values(m)
		}
	}
	return nil
}

// metrics are those that an aim can be about.
func metrics() []result.Metric { return slices.Concat(result.Metrics(), result.DrillMetrics()) }

func metricNamed(name string) (result.Metric, bool) {
	i := slices.IndexFunc(metrics(), func(m result.Metric) bool { return m.Name == name })
	if i < 0 {
		return result.Metric{}, false
	}
	return metrics()[i], true
}

// churnLabel is the label of runs with a churn, absent the most there is; "" where
// there is no churn at all.
func churnLabel(all []float64, churn *float64) string {
	if len(all) == 0 {
		return ""
	}
	if churn == nil {
		most := slices.Max(all)
		churn = &most
	}
	return strconv.FormatFloat(*churn, 'f', -1, 64)
}

func withChurn(label string) string {
	switch label {
	case "":
		return ""
	case "0":
		return ", no changes"
	}
	return ", " + label + " changes a second"
}

func (s Scenario) validateAim(a Aim) error {
	metric, known := metricNamed(a.Metric)
	ofDrill := slices.ContainsFunc(result.DrillMetrics(), func(m result.Metric) bool { return m.Name == a.Metric })
	switch {
	case !known:
		var names []string
		for _, m := range metrics() {
			names = append(names, m.Name)
		}
		return fmt.Errorf("aim of %s: metric %q is none: there are %s", a.Contender, a.Metric, strings.Join(names, ", "))
	case ofDrill && s.Drill == nil:
		return fmt.Errorf("aim of %s: metric %s is of a drill, and there is none", a.Contender, a.Metric)
	case !slices.Contains(s.Contenders, a.Contender):
		return fmt.Errorf("aim: contender %q is not among contenders", a.Contender)
	case a.Over != "" && !slices.Contains(s.Contenders, a.Over):
		return fmt.Errorf("aim of %s: over %q is not among contenders", a.Contender, a.Over)
	case count(a.Over != "", a.OverServices != 0, a.OverFewest, a.OverChurn != nil) > 1:
		return fmt.Errorf("aim of %s: over, over-services, over-fewest-endpoints and over-churn exclude each other", a.Contender)
	case !s.hasChurn(a.Churn) || !s.hasChurn(a.OverChurn):
		return fmt.Errorf("aim of %s: what churn and over-churn say is not in churn", a.Contender)
	case (a.AtMost == 0) == (a.AtLeast == 0) && !metric.Total:
		return fmt.Errorf("aim of %s: write at-most or at-least", a.Contender)
	}
	return nil
}

// hasChurn says whether runs have a churn, if one is wanted.
func (s Scenario) hasChurn(churn *float64) bool {
	return churn == nil || slices.Contains(s.Churn, *churn)
}

// count returns how many are true.
func count(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

func timesText(ratio float64) string { return fmt.Sprintf("× %.3f", ratio) }

func manyServices(n int) string {
	if n == 1 {
		return "1 Service"
	}
	return fmt.Sprintf("%d Services", n)
}
