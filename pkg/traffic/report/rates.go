package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// ServicesLabel is the label that says how many Services there were: with
// several values it makes a figure of its own.
const (
	ServicesLabel = "services"
	// EndpointsLabel says how many endpoints each has, which makes a figure too.
	EndpointsLabel = "endpoints"
	// FamilyLabel says of which family addresses are.
	FamilyLabel = "family"
)

// ChurnLabel is the label that says how many changes of Services there were a
// second.
const ChurnLabel = "churn"

// rateFigure draws the rate of each series as a bar, with the quartiles of its
// rounds. A series alone needs no picture of its rate.
func rateFigure(f facet) (Figure, bool) {
	unit, factor := "operations a second", 1.0
	if f.series[0].pooled.Load.Kind == "bulk" {
		unit, factor = "Gbit/s", 8e-9
	}
	p := newPlot("Rate"+f.suffix(), "", unit)
	p.Y.Tick.Marker = counts{}
	names := make([]string, len(f.series))
	var spread quartileBars
	for i, s := range f.series {
		values := s.group.Values(result.Rate())
		first, third := result.Quartiles(values)
		median := result.Median(values) * factor
		names[i] = shorten(s.name, 24)
		bar, err := plotter.NewBarChart(plotter.Values{median}, vg.Points(26))
		if err != nil {
			return Figure{}, false
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), hue(i), 0
		p.Add(bar)
		spread.add(float64(i), median, first*factor, third*factor)
		p.Y.Max = max(p.Y.Max, third*factor)
	}
	if err := spread.draw(p, draw.LineStyle{Color: hues[6], Width: vg.Points(1)}); err != nil {
		return Figure{}, false
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4, 0, max(p.Y.Max*1.08, 1e-9)
	return Figure{
		Name: fileName("rate", f.name), Title: "Rate" + f.suffix(), plot: p,
		Caption: "Higher is better. Bars are medians of rounds, the lines on them go from the first to the third quartile.",
	}, len(f.series) > 1
}

// quartileBars are points with what is around them.
type quartileBars struct {
	plotter.XYs
	plotter.YErrors
}

func (q *quartileBars) add(x, median, first, third float64) {
	q.XYs = append(q.XYs, plotter.XY{X: x, Y: median})
	q.YErrors = append(q.YErrors, struct{ Low, High float64 }{median - first, third - median})
}

func (q *quartileBars) draw(p *plot.Plot, style draw.LineStyle) error {
	bars, err := plotter.NewYErrorBars(q)
	if err != nil {
		return err
	}
	bars.LineStyle = style
	p.Add(bars)
	return nil
}

// scalings returns figures of latency by the number of Services, and by that of
// their endpoints, one for each percentile that all rounds have, if there are
// several numbers. What differs by churn or family has figures of its own.
func scalings(groups []result.Group) []Figure {
	var figures []Figure
	for _, label := range []string{ServicesLabel, EndpointsLabel} {
		other := map[string]string{ServicesLabel: EndpointsLabel, EndpointsLabel: ServicesLabel}[label]
		if len(labelValues(groups, label)) < 2 || len(labelValues(groups, other)) > 1 {
			continue // or there is no one line for a contender
		}
		for _, part := range partsBy(groups, ChurnLabel, FamilyLabel) {
			for _, m := range []result.Metric{result.PercentileMetric(50), result.PercentileMetric(99)} {
				f, drawn := scaling(part.groups, label, m)
				if !drawn {
					continue
				}
				if part.name != "" {
					f.Name, f.Title = fileName(f.Name, part.name), f.Title+", "+part.name
					f.plot.Title.Text = f.Title
				}
				figures = append(figures, f)
			}
		}
	}
	return figures
}

// part is the measurements that have the same values of some labels.
type part struct {
	name   string // the labels with their values, "" without any
	groups []result.Group
}

func partsBy(groups []result.Group, labels ...string) []part {
	var parts []part
	for _, g := range groups {
		var words []string
		for _, label := range labels {
			if value, ok := g.Labels[label]; ok {
				words = append(words, label+" "+value)
			}
		}
		name := strings.Join(words, ", ")
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			i, parts = len(parts), append(parts, part{name: name})
		}
		parts[i].groups = append(parts[i].groups, g)
	}
	return parts
}

// scaling draws a metric by a label that is a number.
func scaling(groups []result.Group, label string, m result.Metric) (Figure, bool) {
	name := map[string]string{ServicesLabel: "Services", EndpointsLabel: "endpoints"}[label]
	p := newPlot("Latency by number of "+name+", "+m.Name, name, m.Name)
	p.X.Scale, p.X.Tick.Marker = logarithmic{}, steps{text: countText}
	low, high, most := math.Inf(1), 1.0, 1.0
	contenders := labelValues(groups, ContenderLabel)
	for i, contender := range contenders {
		var line quartileBars
		for _, g := range groups {
			number, err := strconv.ParseFloat(g.Labels[label], 64)
			values := g.Values(m)
			if g.Labels[ContenderLabel] != contender || err != nil || len(values) == 0 {
				continue
			}
			first, third := result.Quartiles(values)
			// Beside each other, so that their lines do not hide each other.
			line.add(number*math.Pow(1.03, float64(i)), result.Median(values), first, third)
			low, high, most = min(low, first), max(high, third), max(most, number)
		}
		if len(line.XYs) == 0 {
			continue
		}
		curve, points, err := plotter.NewLinePoints(line.XYs)
		if err != nil {
			return Figure{}, false
		}
		curve.LineStyle = lineStyle(i)
		points.Color, points.Shape = hue(i), draw.CircleGlyph{}
		p.Add(curve, points)
		if err := line.draw(p, draw.LineStyle{Color: hue(i), Width: vg.Points(1)}); err != nil {
			return Figure{}, false
		}
		p.Legend.Add(contender, curve, points)
	}
	if math.IsInf(low, 1) {
		return Figure{}, false
	}
	durationAxis(&p.Y, low*0.8, high*1.3)
	p.X.Min, p.X.Max = 0.8, most*1.5
	p.Legend.Top, p.Legend.Left = true, true
	return Figure{
		Name: fileName(label, m.Name), Title: p.Title.Text, plot: p,
		Caption: "Lower is better; flat is what a load balancer should be. Points are medians of rounds, the lines on them go from the first to the third quartile.",
	}, true
}
