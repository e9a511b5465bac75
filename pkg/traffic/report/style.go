package report

import (
	"fmt"
	"image/color"
	"math"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a figure.
const (
	width  = 18 * vg.Centimeter
	height = 9 * vg.Centimeter
)

// hues are those of series, apart from each other for people who see no red or
// no green, too (Okabe and Ito, 2008).
var hues = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x55, 0x55, 0x55, 0xff}, {0x88, 0x22, 0x55, 0xff},
}

var (
	faint   = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	reddish = color.RGBA{0xb0, 0x20, 0x20, 0xff}
)

// dashes tell series apart in print without colours.
var dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}

func hue(i int) color.RGBA { return hues[i%len(hues)] }

func lineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: hue(i), Width: vg.Points(1.4), Dashes: dashes[i/2%len(dashes)]}
}

// newPlot returns an empty plot in the style of all.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(6)
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Typeface, f.Variant, f.Size = "Liberation", "Sans", vg.Points(9)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Legend.Padding = vg.Points(2)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	return p
}

// logarithmic is a scale that takes any range: what is not positive is at its
// beginning.
type logarithmic struct{}

func (logarithmic) Normalize(low, high, x float64) float64 {
	low = max(low, math.SmallestNonzeroFloat64)
	if x <= low || high <= low {
		return 0
	}
	return math.Log(x/low) / math.Log(high/low)
}

// durationAxis makes an axis one of nanoseconds, by their logarithm.
func durationAxis(a *plot.Axis, low, high float64) {
	a.Scale, a.Tick.Marker = logarithmic{}, steps{text: durationText}
	a.Min, a.Max = max(low, 1), max(high, 2*max(low, 1))
}

// steps are ticks at 1, 2 and 5 times the powers of ten, for logarithms.
type steps struct {
	text func(float64) string
}

// Ticks returns the ticks from low to high.
func (s steps) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	wide := high/max(low, 1) > 1e4
	for power := math.Pow(10, math.Floor(math.Log10(max(low, 1)))); power <= high; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * power
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if digit == 1 || !wide {
				t.Label = s.text(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// durationText is a round number of nanoseconds.
func durationText(ns float64) string {
	d := time.Duration(ns)
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return trim(d, time.Microsecond) + " µs"
	case d < time.Second:
		return trim(d, time.Millisecond) + " ms"
	}
	return trim(d, time.Second) + " s"
}

// trim is a duration in a unit with three digits at most.
func trim(d, unit time.Duration) string {
	return fmt.Sprintf("%.3g", float64(d)/float64(unit))
}

// counts are ticks of numbers with thousands apart.
type counts struct{}

// Ticks returns the ticks from low to high.
func (counts) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = countText(t.Value)
		}
	}
	return ticks
}

// countText is a number with thousands apart.
func countText(x float64) string {
	if x != math.Trunc(x) {
		return fmt.Sprintf("%.3g", x)
	}
	text := fmt.Sprintf("%.0f", math.Abs(x))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if x < 0 {
		return "-" + text
	}
	return text
}

// shorten cuts a text to so many characters.
func shorten(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}
