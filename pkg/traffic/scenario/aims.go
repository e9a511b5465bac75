package scenario

import (
	"fmt"
	"slices"
	"strconv"

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
	metric := result.Metrics()[slices.IndexFunc(result.Metrics(), func(m result.Metric) bool { return m.Name == a.Metric })]
	out := report.Aim{What: fmt.Sprintf("%s of %s, %s", a.Metric, a.Peer, manyServices(services)), Measured: "not measured"}
	of := values(groups, a.Peer, services, metric)
	bound, text := a.AtMost, metric.Text
	over := []float64(nil)
	switch {
	case a.Over != "":
		out.What += ", over " + a.Over
		over, text = values(groups, a.Over, services, metric), timesText
	case a.OverServices != 0:
		out.What += ", over " + manyServices(a.OverServices)
		over, text = values(groups, a.Peer, a.OverServices, metric), timesText
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

// values are those of the rounds of a peer, in their order. Of failures it is the
// share of all rounds together: a median would forget those of a few.
func values(groups []result.Group, peer string, services int, m result.Metric) []float64 {
	for _, g := range groups {
		if g.Labels[report.PeerLabel] == peer && g.Labels[report.ServicesLabel] == strconv.Itoa(services) {
			if m.Name == result.FailedShare().Name {
				g.Runs = []result.Run{g.Pooled()}
			}
			return g.Values(m)
		}
	}
	return nil
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

func timesText(ratio float64) string { return fmt.Sprintf("× %.3f", ratio) }

func manyServices(n int) string {
	if n == 1 {
		return "1 Service"
	}
	return fmt.Sprintf("%d Services", n)
}
