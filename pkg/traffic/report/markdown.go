package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// WriteMarkdownFile writes the page as Markdown to a file: what fell short, a
// line of medians for each measurement with a column for each contender, and the
// aims. Pictures and all else are in the page of HTML and in the results.
func (p Page) WriteMarkdownFile(path string) error {
	return writeWhole(path, func(w io.Writer) error {
		fmt.Fprintf(w, "# %s\n\n%s\n\n## What fell short\n\n", p.Title, p.Intro)
		missed := p.Missed()
		for _, line := range missed {
			fmt.Fprintf(w, "- %s\n", line)
		}
		if len(missed) == 0 {
			fmt.Fprintln(w, "Nothing: every stated aim was met in this run.")
		}
		fmt.Fprint(w, "\n## What was measured\n\n")
		for _, s := range p.Sections {
			for _, text := range append([]string{"**" + s.Title + "**: " + s.Text}, s.Notes...) {
				fmt.Fprintf(w, "- %s\n", text)
			}
		}
		fmt.Fprint(w, "\n## Medians\n\nTimes are p50 / p99 of an operation; where an endpoint is replaced, when the last operation reached\nthe old server / the first one the new. Failed and slow operations are those of all rounds.\n\n")
		p.medians().markdown(w)
		if aims := p.aims(); len(aims.Rows) > 0 {
			fmt.Fprint(w, "## Aims\n\n")
			aims.markdown(w)
		}
		return p.writeMachine(w)
	})
}

// medians has a row for each measurement that contenders share.
func (p Page) medians() Table {
	contenders := p.contenders()
	t := Table{Header: append([]string{"measurement"}, contenders...)}
	for _, s := range p.Sections {
		rows := map[string][]string{}
		var names []string
		for _, g := range result.Groups(s.Report.Runs) {
			name := caseName(s.Title, g)
			if rows[name] == nil {
				names = append(names, name)
				rows[name] = slices.Repeat([]string{"–"}, len(contenders))
			}
			rows[name][slices.Index(contenders, g.Labels[ContenderLabel])] = medianCell(g)
		}
		for _, name := range names {
			t.Rows = append(t.Rows, append([]string{name}, rows[name]...))
		}
	}
	return t
}

// contenders are those of all sections, in the order in which they come.
func (p Page) contenders() []string {
	var contenders []string
	for _, s := range p.Sections {
		for _, g := range result.Groups(s.Report.Runs) {
			if contender := g.Labels[ContenderLabel]; !slices.Contains(contenders, contender) {
				contenders = append(contenders, contender)
			}
		}
	}
	return contenders
}

// caseName is what the contenders of a row have in common.
func caseName(section string, g result.Group) string {
	_, labels, found := strings.Cut(shortTitle(g), ", ")
	if !found {
		return section
	}
	return section + ": " + labels
}

// medianCell is what came of one contender.
func medianCell(g result.Group) string {
	pooled := g.Pooled()
	text := fmt.Sprintf("%s / %s", orDash(g, result.PercentileMetric(50)), orDash(g, result.PercentileMetric(99)))
	if pooled.Drill == nil {
		return text + counted(pooled.Failed, "failed")
	}
	columns := drillColumns()
	if old, fresh := columns[0], columns[1]; len(g.Values(old)) > 0 {
		text = fmt.Sprintf("%s / %s", orDash(g, old), orDash(g, fresh))
	}
	return text + counted(pooled.Drill.Failed, "failed") + counted(pooled.Drill.Slow, "slow")
}

// counted is ", 3 failed", and nothing for none.
func counted(n uint64, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %s", n, what)
}

func (p Page) aims() Table {
	t := Table{Header: []string{"aim", "aimed at", "measured", "result"}}
	for _, s := range p.Sections {
		for _, a := range s.Aims {
			t.Rows = append(t.Rows, []string{s.Title + ": " + a.What, a.AtMost, a.Measured, map[bool]string{true: "met", false: "missed"}[a.Met]})
		}
	}
	return t
}

// writeMachine says where and when all of it was measured.
func (p Page) writeMachine(w io.Writer) error {
	if len(p.Sections) == 0 {
		return nil
	}
	first, last := p.Sections[0].Report.Meta, p.Sections[len(p.Sections)-1].Report.Meta
	first.Ended, first.LoadAfter = last.Ended, last.LoadAfter
	machine := machineTable(first)
	machine.Header = []string{"measured", "by"}
	fmt.Fprint(w, "## By\n\n")
	machine.markdown(w)
	return nil
}

func (t Table) markdown(w io.Writer) {
	row := func(cells []string) {
		for i, c := range cells {
			cells[i] = cell(c)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	row(t.Header)
	fmt.Fprintln(w, strings.Repeat("|---", len(t.Header))+"|")
	for _, r := range t.Rows {
		row(r)
	}
	fmt.Fprintln(w)
}
