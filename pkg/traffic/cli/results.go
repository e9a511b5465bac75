package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// pictures are where results are drawn to.
type pictures struct {
	html  string
	plots string
}

func (p *pictures) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.html, "html", "", "file for a self-contained page with plots")
	flags.StringVar(&p.plots, "plots", "", "directory for plots, as SVG and PNG")
}

// write draws what was asked for.
func (p *pictures) write(page report.Page) error {
	if p.html != "" {
		if err := page.WriteHTMLFile(p.html); err != nil {
			return err
		}
	}
	if p.plots == "" {
		return nil
	}
	for i, s := range page.Sections {
		figures := report.Figures(s.Report)
		for k := range figures {
			if len(page.Sections) > 1 {
				figures[k].Name = fmt.Sprintf("%02d-%s", i+1, figures[k].Name)
			}
		}
		if _, err := report.WriteFigures(p.plots, figures); err != nil {
			return err
		}
	}
	return nil
}

// onePage is a page of one report.
func onePage(r *result.Report) report.Page {
	title := "Measurement"
	if len(r.Runs) > 0 && r.Runs[0].Name != "" {
		title = r.Runs[0].Name
	}
	return report.Page{Title: title, Sections: []report.Section{{Title: "Results", Report: r, Base: "direct"}}}
}

func newReport() *cobra.Command {
	var p pictures
	var title string
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Draw results that were saved as JSON",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if p.html == "" && p.plots == "" {
				return errors.New("nothing to write: name a file with --html, a folder with --plots, or both")
			}
			page := report.Page{Title: title}
			for _, file := range args {
				r, err := result.ReadFile(file)
				if err != nil {
					return err
				}
				name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
				page.Sections = append(page.Sections, report.Section{Title: name, Report: r, Base: "direct"})
			}
			return p.write(page)
		},
	}
	p.add(cmd.Flags())
	cmd.Flags().StringVar(&title, "title", "Measurements", "title of the page")
	return cmd
}

const compareLong = `Compare puts two results beside each other. For each measurement that both have it
prints the ratio of B to A of the rate, the percentiles of latency and the share of
failures, with the 95 % confidence interval of the ratio.

With three rounds or more on both sides the interval is a bootstrap over the rounds:
2,000 resamples with replacement, and the middle 95 % of the ratios of their medians.
With fewer rounds it comes from the samples within the runs: order statistics of
percentiles, Poisson's distribution of counts. That ignores how runs differ, so the
interval is too narrow: measure in rounds, with --label round=N or headgate-bench scenario.`

func newCompare(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two results that were saved as JSON",
		Long:  compareLong,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := result.ReadFile(args[0])
			if err != nil {
				return err
			}
			b, err := result.ReadFile(args[1])
			if err != nil {
				return err
			}
			c := result.Compare(a, b)
			if len(c.Pairings) == 0 {
				return fmt.Errorf("%s and %s share no measurement: name, load and labels but round must be the same", args[0], args[1])
			}
			if e.IsJSON() {
				return e.Print(cmd.OutOrStdout(), command.Table{Value: c})
			}
			return c.WriteTable(command.Printable(cmd.OutOrStdout()))
		},
	}
}
