package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// mostLines is how many runs are shown over time if nothing happened in them.
const mostLines = 4

// worthALine returns the runs whose time lines say something: those with events
// and those with failures, or all if there are few. Drills have a figure for all
// contenders together.
func worthALine(runs []result.Run) []result.Run {
	if len(runs) <= mostLines {
		return runs
	}
	lines := slices.DeleteFunc(slices.Clone(runs), func(r result.Run) bool {
		return len(r.Events) == 0 && r.Failed == 0 && r.Broken == 0 || r.Drill != nil
	})
	return lines[:min(len(lines), 2*mostLines)]
}

// rateLine draws what was due, completed and failed over time.
func rateLine(r result.Run) (Figure, bool) {
	p := newPlot("Rate over time, "+shorten(runTitle(r), 70), "seconds", "operations a second")
	p.Y.Tick.Marker = counts{}
	step := r.Interval.Seconds()
	if step <= 0 || len(r.TimeLine) < 2 {
		return Figure{}, false
	}
	for i, what := range []struct {
		name string
		of   func(result.Point) uint64
		seen bool
	}{
		{"completed", func(t result.Point) uint64 { return t.Completed }, true},
		{"failed", func(t result.Point) uint64 { return t.Failed }, r.Failed > 0},
		{"connections broken", func(t result.Point) uint64 { return t.Broken }, r.Broken > 0},
		{"due", func(t result.Point) uint64 { return t.Due }, r.Load.Loop == "open"},
	} {
		if !what.seen {
			continue
		}
		points := make(plotter.XYs, len(r.TimeLine))
		for k, t := range r.TimeLine {
			points[k] = plotter.XY{X: t.At.Seconds(), Y: float64(what.of(t)) / step}
			p.Y.Max = max(p.Y.Max, points[k].Y)
		}
		addLine(p, i, what.name, points)
	}
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max*1.5, 1)
	finishLine(p, r)
	return Figure{
		Name: fileName("rate-line", runTitle(r)), Title: p.Title.Text, plot: p,
		Caption: fmt.Sprintf("By intervals of %s. Vertical lines are events, from their beginning.", r.Interval),
	}, true
}

// latencyLine draws percentiles of what was due over time.
func latencyLine(r result.Run) (Figure, bool) {
	p := newPlot("Latency over time, "+shorten(runTitle(r), 70), "seconds", "latency")
	low, high := math.Inf(1), 1.0
	for i, what := range []struct {
		name string
		of   func(result.Point) time.Duration
	}{
		{"p50", func(t result.Point) time.Duration { return t.P50 }},
		{"p99", func(t result.Point) time.Duration { return t.P99 }},
		{"max", func(t result.Point) time.Duration { return t.Max }},
	} {
		var points plotter.XYs
		for _, t := range r.TimeLine {
			if v := float64(what.of(t)); v > 0 { // 0: nothing was due then that completed
				points = append(points, plotter.XY{X: t.At.Seconds(), Y: v})
				low, high = min(low, v), max(high, v)
			}
		}
		if len(points) > 0 {
			addLine(p, i, what.name, points)
		}
	}
	if math.IsInf(low, 1) {
		return Figure{}, false
	}
	durationAxis(&p.Y, low/1.5, high*3)
	finishLine(p, r)
	return Figure{
		Name: fileName("latency-line", runTitle(r)), Title: p.Title.Text, plot: p,
		Caption: "Of the operations that were due in each interval. Vertical lines are events, from their beginning.",
	}, true
}

func addLine(p *plot.Plot, i int, name string, points plotter.XYs) {
	line, err := plotter.NewLine(points)
	if err != nil {
		return // no number: there is nothing to draw
	}
	line.LineStyle = lineStyle(i)
	p.Add(line)
	p.Legend.Add(name, line)
}

// finishLine adds the events to a time line.
func finishLine(p *plot.Plot, r result.Run) {
	p.X.Min, p.X.Max = 0, max(r.Elapsed.Seconds(), r.TimeLine[len(r.TimeLine)-1].At.Seconds())
	p.Legend.Top = true
	for i, e := range r.Events {
		p.Add(event{at: e.At.Seconds(), name: fmt.Sprintf("%d", i+1)})
		p.Legend.Add(fmt.Sprintf("%d: %s", i+1, shorten(e.Name, 40)))
	}
}

// event is a vertical line with a name.
type event struct {
	at   float64
	name string
}

// Plot draws the line.
func (e event) Plot(c draw.Canvas, p *plot.Plot) {
	toX, _ := p.Transforms(&c)
	x := toX(e.at)
	if !c.ContainsX(x) {
		return
	}
	c.StrokeLine2(draw.LineStyle{Color: reddish, Width: vg.Points(1), Dashes: dashes[1]}, x, c.Min.Y, x, c.Max.Y)
	style := text.Style{Color: reddish, Font: p.Legend.TextStyle.Font, XAlign: text.XLeft, YAlign: text.YTop, Handler: p.TextHandler}
	c.FillText(style, vg.Point{X: x + vg.Points(2), Y: c.Max.Y}, e.name)
}
