package cli

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/traffic/result"
)

const benchLong = `Bench sends traffic and measures what comes of it: rates, latencies to p99.99
from the moment at which each operation was due, errors by kind, and who
answered. It sends to nothing but loopback and network namespaces that it made,
unless it is told that it may.

-j prints a result as JSON, which bench show prints as a table again.`

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
	cmd.AddCommand(newBenchShow(e))
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
			return e.printReport(cmd.OutOrStdout(), report)
		},
	}
}
