package report

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// ContenderLabel is the label that tells apart the ways that are measured beside each
// other: it names the lines of a figure.
const ContenderLabel = "contender"

// series is one measurement, a line of a figure.
type series struct {
	name   string
	group  result.Group
	pooled result.Run
}

// facet is what is drawn in one figure.
type facet struct {
	name   string // what its series have in common, "" if there is one facet
	series []series
}

func (f facet) suffix() string {
	if f.name == "" {
		return ""
	}
	return ", " + f.name
}

// mostSeries is how many lines a figure may have.
const mostSeries = 8

// facets puts measurements into figures: with contenders one figure for all contenders
// that did the same, else as many in a figure as it takes.
func facets(groups []result.Group) []facet {
	var list []facet
	index := make(map[string]int)
	common := commonName(groups)
	for _, g := range groups {
		title := strings.TrimPrefix(g.Title, common)
		name, contender := "", title
		if p, ok := g.Labels[ContenderLabel]; ok {
			contender, name = p, strings.Replace(title, ", "+ContenderLabel+" "+p, "", 1)
		}
		i, known := index[name]
		if !known || len(list[i].series) == mostSeries {
			i, index[name] = len(list), len(list)
			list = append(list, facet{name: name})
		}
		list[i].series = append(list[i].series, series{name: contender, group: g, pooled: g.Pooled()})
	}
	for i := range list {
		list[i].shortNames()
	}
	return list
}

// commonName is how the titles of measurements begin that all have the same name:
// it is that of the section, and a title of a figure has no room for it.
func commonName(groups []result.Group) string {
	common := ""
	for _, g := range groups {
		name := g.Runs[0].Name
		if name == "" || g.Title == name || common != "" && common != name+", " {
			return ""
		}
		common = name + ", "
	}
	if len(groups) < 2 {
		return ""
	}
	return common
}

// shortNames leaves out of names what all of them have.
func (f *facet) shortNames() {
	if f.name != "" {
		return
	}
	if len(f.series) == 1 {
		f.name, f.series[0].name = f.series[0].name, f.series[0].pooled.Load.Kind
		return
	}
	common := make(map[string]int)
	for _, s := range f.series {
		for part := range strings.SplitSeq(s.name, ", ") {
			common[part]++
		}
	}
	shared := []string{}
	for _, part := range strings.Split(f.series[0].name, ", ") {
		if common[part] == len(f.series) {
			shared = append(shared, part)
		}
	}
	for i, s := range f.series {
		own := slices.DeleteFunc(strings.Split(s.name, ", "), func(part string) bool { return slices.Contains(shared, part) })
		if len(own) > 0 {
			f.series[i].name = strings.Join(own, ", ")
		}
	}
	f.name = strings.Join(shared, ", ")
}

// Figures returns all that a report gives to draw. What a figure would be empty
// of is left out.
func Figures(r *result.Report) []Figure {
	var figures []Figure
	add := func(f Figure, drawn bool) {
		if drawn {
			figures = append(figures, f)
		}
	}
	groups := result.Groups(r.Runs)
	for _, f := range scalings(groups) {
		add(f, true)
	}
	for _, f := range facets(groups) {
		add(rateFigure(f))
		add(percentileFigure(f))
		add(distributionFigure(f))
		figures = append(figures, drillFigures(f)...)
	}
	for _, run := range worthALine(r.Runs) {
		add(rateLine(run))
		add(latencyLine(run))
	}
	return distinct(figures)
}

// distinct gives figures with equal names numbers.
func distinct(figures []Figure) []Figure {
	seen := make(map[string]int)
	for i, f := range figures {
		if seen[f.Name]++; seen[f.Name] > 1 {
			figures[i].Name = fileName(f.Name, countText(float64(seen[f.Name])))
		}
	}
	return figures
}

// runTitle is what a run is, in a line.
func runTitle(r result.Run) string {
	title := result.Groups([]result.Run{r})[0].Title
	if round, ok := r.Labels[result.RoundLabel]; ok {
		title += ", round " + round
	}
	return title
}

// labelValues returns the values that a label has in groups, in their order.
func labelValues(groups []result.Group, label string) []string {
	var values []string
	for _, g := range groups {
		if v, ok := g.Labels[label]; ok && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}
