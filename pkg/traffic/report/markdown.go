package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WriteMarkdownFile writes the page as Markdown to a file, and the figures that
// it shows as SVG to a folder, to which it refers from where it is. What was in
// the folder of an earlier page goes.
func (p Page) WriteMarkdownFile(path, plots string) error {
	from, err := filepath.Rel(filepath.Dir(path), plots)
	if err != nil {
		return fmt.Errorf("write Markdown: name of the folder %s from %s: %w", plots, path, err)
	}
	if err := removeFigures(plots); err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "# %s\n\n%s\n\n## What fell short\n\n", p.Title, p.Intro)
		if err != nil {
			return err
		}
		missed := p.Missed()
		for _, line := range missed {
			fmt.Fprintf(w, "- %s\n", line)
		}
		if len(missed) == 0 {
			fmt.Fprintln(w, "Nothing: every stated aim was met in this run.")
		}
		for i, s := range p.Sections {
			if err := s.writeMarkdown(w, fmt.Sprintf("%02d", i+1), from, plots); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeFigures removes what an earlier page had: figures begin with the number of
// their section.
func removeFigures(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "[0-9][0-9]-*.svg"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func (s Section) writeMarkdown(w io.Writer, prefix, from, plots string) error {
	shown, err := s.shown()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n## %s\n\n", s.Title)
	if s.Text != "" {
		fmt.Fprintf(&text, "%s\n\n", s.Text)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(&text, "%s\n\n", note)
	}
	if len(s.Aims) > 0 {
		aims := Table{Header: []string{"aim", "aimed at", "measured", "result"}}
		for _, a := range s.Aims {
			aims.Rows = append(aims.Rows, []string{a.What, a.AtMost, a.Measured, map[bool]string{true: "met", false: "missed"}[a.Met]})
		}
		aims.markdown(&text)
	}
	shown.Summary.markdown(&text)
	for _, t := range []Table{shown.Drills, shown.Churn} {
		if len(t.Rows) > 0 {
			t.markdown(&text)
		}
	}
	figures := slices.DeleteFunc(Figures(s.Report), func(f Figure) bool { return f.detail })
	for i, f := range figures {
		figures[i].Name = prefix + "-" + f.Name
		fmt.Fprintf(&text, "![%s](%s/%s.svg)\n\n%s\n\n", cell(f.Title), filepath.ToSlash(from), figures[i].Name, f.Caption)
	}
	if len(shown.Beside.Rows) > 0 {
		shown.Beside.markdown(&text)
	}
	if len(shown.Memory.Rows) > 0 {
		shown.Memory.markdown(&text)
	}
	shown.Machine.Header = []string{"measured", "by"}
	shown.Machine.markdown(&text)
	if _, err := writeFigures(plots, figures, ".svg"); err != nil {
		return err
	}
	_, err = w.Write(bytes.TrimRight(text.Bytes(), "\n"))
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
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
