package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// Page is reports to be shown.
type Page struct {
	Title    string
	Intro    string
	Sections []Section
}

// Section is one report with what is said of it.
type Section struct {
	Title  string
	Text   string   // one paragraph
	Notes  []string // what else is to be known, such as what was left out
	Report *result.Report
	// Base is the contender that the others are compared with, "" for none.
	Base string
	Aims []Aim
}

// Aim is what a measurement was to reach.
type Aim struct {
	What     string // is measured
	AtMost   string
	Measured string
	Met      bool
}

//go:embed page.html
var pageText string

// shownSection is a Section as the template wants it.
type shownSection struct {
	Section
	Machine, Summary, Beside, Drills, Churn, Memory Table
	Figures                                         []shownFigure
	Details                                         string
}

type shownFigure struct {
	Figure
	SVG template.HTML
}

// WriteHTML writes a page that needs no other file.
func (p Page) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	shown := struct {
		Page
		Shown  []shownSection
		Missed []string
	}{Page: p, Missed: p.Missed()}
	for _, s := range p.Sections {
		section, err := s.shown()
		if err != nil {
			return fmt.Errorf("write HTML: %w", err)
		}
		shown.Shown = append(shown.Shown, section)
	}
	if err := t.Execute(w, shown); err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	return nil
}

func (s Section) shown() (shownSection, error) {
	groups := result.Groups(s.Report.Runs)
	shown := shownSection{
		Section: s, Machine: machineTable(s.Report.Meta), Summary: summary(groups), Beside: beside(groups, s.Base),
		Drills: drillTable(groups), Churn: churnTable(groups), Memory: memory(groups),
	}
	for _, f := range Figures(s.Report) {
		svg, err := f.inline()
		if err != nil {
			return shown, err
		}
		// Drawn here, and every text in it is escaped by the canvas.
		shown.Figures = append(shown.Figures, shownFigure{f, template.HTML(svg)})
	}
	var details bytes.Buffer
	if err := s.Report.WriteTable(&details); err != nil {
		return shown, err
	}
	shown.Details = details.String()
	return shown, nil
}

// Missed returns a line for each aim that was missed.
func (p Page) Missed() []string {
	var lines []string
	for _, s := range p.Sections {
		for _, a := range s.Aims {
			if !a.Met {
				lines = append(lines, fmt.Sprintf("%s: %s is %s, aimed at %s", s.Title, a.What, a.Measured, a.AtMost))
			}
		}
	}
	return lines
}

// WriteHTMLFile writes the page to a file, which is there whole or not at all.
func (p Page) WriteHTMLFile(path string) error {
	return writeWhole(path, p.WriteHTML)
}

// writeWhole writes a file that is there whole or not at all.
func writeWhole(path string, write func(io.Writer) error) error {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	partial := path + ".partial"
	err := os.WriteFile(partial, content.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		_ = os.Remove(partial)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// cell is a text within a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
