package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// WriteText writes the tables of a page for a terminal, and what fell short.
func (p Page) WriteText(w io.Writer) error {
	for _, s := range p.Sections {
		fmt.Fprintf(w, "%s\n", s.Title)
		for _, note := range s.Notes {
			fmt.Fprintf(w, "  %s\n", note)
		}
		groups := result.Groups(s.Report.Runs)
		for _, t := range []Table{summary(groups), drillTable(groups), churnTable(groups), beside(groups, s.Base), memory(groups)} {
			if err := t.text(w); err != nil {
				return err
			}
		}
	}
	missed := p.Missed()
	if len(missed) == 0 {
		_, err := fmt.Fprintln(w, "Nothing fell short of an aim that was stated.")
		return err
	}
	_, err := fmt.Fprintf(w, "What fell short:\n  %s\n", strings.Join(missed, "\n  "))
	return err
}

func (t Table) text(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "  %s\n", strings.ToUpper(strings.Join(t.Header, "\t")))
	for _, row := range t.Rows {
		fmt.Fprintf(tw, "  %s\n", strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
