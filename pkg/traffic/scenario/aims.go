package scenario

import (
	"fmt"
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
	services := a.Services
	if services == 0 {
		services = slices.Max(s.Services)
	}
	metric, _ := metricNamed(a.Metric)
	churn := churnLabel(s.Churn, a.Churn)
	out := report.Aim{What: fmt.Sprintf("%s of %s, %s%s", a.Metric, a.Peer, manyServices(services), withChurn(churn)), Measured: "not measured"}
	of := values(groups, a.Peer, services, churn, metric)
	bound, text := a.AtMost, metric.Text
	over := []float64(nil)
	switch {
	case a.Over != "":
		out.What += ", over " + a.Over
		over, text = values(groups, a.Over, services, churn, metric), timesText
	case a.OverServices != 0:
		out.What += ", over " + manyServices(a.OverServices)
		over, text = values(groups, a.Peer, a.OverServices, churn, metric), timesText
	case a.OverChurn != nil:
		before := churnLabel(s.Churn, a.OverChurn)
		out.What += ", over" + strings.TrimPrefix(withChurn(before), ",")
		over, text = values(groups, a.Peer, services, before, metric), timesText
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

// values are those of the rounds of a peer, in their order. Of a total it is that
// of all rounds together.
func values(groups []result.Group, peer string, services int, churn string, m result.Metric) []float64 {
	for _, g := range groups {
		if g.Labels[report.PeerLabel] == peer && g.Labels[report.ServicesLabel] == strconv.Itoa(services) && g.Labels[report.ChurnLabel] == churn {
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
		return fmt.Errorf("aim of %s: metric %q is none: there are %s", a.Peer, a.Metric, strings.Join(names, ", "))
	case ofDrill && s.Drill == nil:
		return fmt.Errorf("aim of %s: metric %s is of a drill, and there is none", a.Peer, a.Metric)
	case !slices.Contains(s.Peers, a.Peer):
		return fmt.Errorf("aim: peer %q is not among peers", a.Peer)
	case a.Over != "" && !slices.Contains(s.Peers, a.Over):
		return fmt.Errorf("aim of %s: over %q is not among peers", a.Peer, a.Over)
	case a.Over != "" && a.OverServices != 0 || a.OverChurn != nil && (a.Over != "" || a.OverServices != 0):
		return fmt.Errorf("aim of %s: over, over-services and over-churn exclude each other", a.Peer)
	case !s.hasChurn(a.Churn) || !s.hasChurn(a.OverChurn):
		return fmt.Errorf("aim of %s: what churn and over-churn say is not in churn", a.Peer)
	case (a.AtMost == 0) == (a.AtLeast == 0) && !metric.Total:
		return fmt.Errorf("aim of %s: write at-most or at-least", a.Peer)
	}
	return nil
}

// hasChurn says whether runs have a churn, if one is wanted.
func (s Scenario) hasChurn(churn *float64) bool {
	return churn == nil || slices.Contains(s.Churn, *churn)
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

func timesText(ratio float64) string { return fmt.Sprintf("× %.3f", ratio) }

func manyServices(n int) string {
	if n == 1 {
		return "1 Service"
	}
	return fmt.Sprintf("%d Services", n)
}
