package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const benchLong = `Bench sends traffic and measures what comes of it: rates, latencies to p99.99
from the moment at which each operation was due, errors by kind, and who
answered. It sends to nothing but loopback and network namespaces that it made,
unless it is told that it may.

-j prints a result as JSON, which bench show prints as a table again, bench report
draws and bench compare puts beside another one.`

// newBench returns the command "bench". What it has to measure and to show is
// in the files bench_*.go.
func newBench(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Send traffic and measure what comes of it",
		Long:  benchLong,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchRun(e), newBenchClient(e), newBenchServer(e), newBenchFlood(e), newBenchShow(e), newBenchReport(), newBenchCompare(e), newBenchScenario(e), newBenchWorker())
	return cmd
}

func newBenchShow(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Show a result that was saved as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := result.ReadFile(args[0])
			if err != nil {
				return err
			}
			return e.printReport(cmd, "", report)
		},
	}
}

// newBenchWorker is what runs loads in the namespaces that bench makes.
func newBenchWorker() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Run loads from standard input",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return load.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// newReport returns a report of this command line.
func (e *env) newReport() *result.Report {
	return result.NewReport(result.Collect(os.Args, map[string]string{"headgate": e.version}))
}

// printReport prints a report in the form that was asked for, and writes it to
// a file if one is named.
func (e *env) printReport(cmd *cobra.Command, file string, report *result.Report) error {
	if file != "" {
		if err := report.WriteFile(file); err != nil {
			return err
		}
	}
	if e.json || e.pretty {
		return report.Write(cmd.OutOrStdout())
	}
	if err := report.WriteTable(cmd.OutOrStdout()); err != nil || file == "" {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "\nwritten to %s\n", file)
	return err
}
