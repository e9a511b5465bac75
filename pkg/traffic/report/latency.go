package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// percentileFigure draws the latency of each series by percentile, on an axis on
// which each further nine takes as much room: so the tail is seen.
func percentileFigure(f facet) (Figure, bool) {
	p := newPlot("Latency by percentile"+f.suffix(), "percentile", "latency")
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 0, Label: "0"}, {Value: nines(50), Label: "50"}, {Value: nines(90), Label: "90"}, {Value: nines(99), Label: "99"},
		{Value: nines(99.9), Label: "99.9"}, {Value: nines(99.99), Label: "99.99"}, {Value: nines(99.999), Label: "99.999"},
	}
	drawn := f.curves(p, func(h *result.Histogram) plotter.XYs {
		var points plotter.XYs
		for share, buckets := 0.0, h.Buckets(); len(buckets) > 0; buckets = buckets[1:] {
			points = append(points, plotter.XY{X: nines(share), Y: float64(max(buckets[0].UpTo, 1))})
			share += 100 * float64(buckets[0].Count) / float64(h.Count())
			if len(buckets) == 1 { // the slowest of all: there is no 100 on this axis
				points = append(points, plotter.XY{X: nines(100 - 100/float64(h.Count()+1)), Y: float64(max(buckets[0].UpTo, 1))})
			}
		}
		return points
	})
	low, high := f.latencyRange()
	durationAxis(&p.Y, low, high)
	p.X.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	return Figure{
		Name: fileName("latency", f.name), Title: "Latency by percentile" + f.suffix(), plot: p,
		Caption: "Lower is better. Each step to the right of 90 is ten times as rare; latency counts from when an operation was due.",
	}, drawn
}

// nines is where a percentile is on its axis: how many nines it has.
func nines(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

// distributionFigure draws which share of operations was at most how slow.
func distributionFigure(f facet) (Figure, bool) {
	p := newPlot("Distribution of latency"+f.suffix(), "latency", "share of operations, %")
	drawn := f.curves(p, func(h *result.Histogram) plotter.XYs {
		points := plotter.XYs{{X: float64(max(h.Min(), 1)), Y: 0}}
		share := 0.0
		for _, b := range h.Buckets() {
			share += 100 * float64(b.Count) / float64(h.Count())
			points = append(points, plotter.XY{X: float64(max(b.UpTo, 1)), Y: share})
		}
		return points
	})
	low, high := f.latencyRange()
	durationAxis(&p.X, low, high)
	p.Y.Min, p.Y.Max = 0, 100
	p.Legend.Left, p.Legend.Top = false, false
	return Figure{
		Name: fileName("cdf", f.name), Title: "Distribution of latency" + f.suffix(), plot: p,
		Caption: "Further left is better. The height is the share of operations that took at most so long.",
	}, drawn
}

// curves adds a line for each series that has latencies, thinned to what can be
// seen. It says whether there is any.
func (f facet) curves(p *plot.Plot, points func(*result.Histogram) plotter.XYs) (drawn bool) {
	for i, s := range f.series {
		if s.pooled.Latency == nil || s.pooled.Latency.Count() == 0 {
			continue
		}
		line, err := plotter.NewLine(thin(points(s.pooled.Latency)))
		if err != nil {
			continue // no number: there is nothing to draw
		}
		line.LineStyle = lineStyle(i)
		p.Add(line)
		p.Legend.Add(s.name, line)
		drawn = true
	}
	return drawn
}

// latencyRange returns the shortest and the longest latency of all series.
func (f facet) latencyRange() (low, high float64) {
	low, high = math.Inf(1), 1
	for _, s := range f.series {
		if h := s.pooled.Latency; h != nil && h.Count() > 0 {
			low, high = min(low, float64(h.Min())), max(high, float64(h.Max()))
		}
	}
	return min(low, high), high * 1.1
}

// mostPoints is how many points of a curve can be told apart.
const mostPoints = 500

// thin leaves out points, never the last, so that those that stay are apart by a
// share of the way.
func thin(points plotter.XYs) plotter.XYs {
	if len(points) <= mostPoints {
		return points
	}
	every := float64(len(points)-1) / (mostPoints - 1)
	thinned := make(plotter.XYs, mostPoints)
	for i := range thinned {
		thinned[i] = points[int(math.Round(float64(i)*every))]
	}
	return thinned
}
