// Package cli is the command line of headgate-bench, the traffic generator: one
// file for each command.
package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const long = `Headgate-bench sends traffic and measures rates, latencies up to p99.99 from the
moment at which each operation was due, errors by kind, and how often each backend
answered. It sends only to loopback and to network namespaces that it made; client
sends elsewhere with --allow-outside.

-j prints a result as JSON: headgate-bench show prints it as a table, report draws it,
and compare puts it beside another one.`

// env is what all commands share.
type env struct {
	command.Output
	version string
}

// Run runs a command line and returns the exit code of the process: 0, or 1
// with one line on stderr.
func Run(args []string, version string, stdout, stderr io.Writer) int {
	return command.Run(newRoot(&env{version: version}), args, stdout, stderr, func(error) int { return command.ExitWrong })
}

func newRoot(e *env) *cobra.Command {
	root := command.NewRoot("headgate-bench", e.version, "Send traffic and measure rates, latencies and errors", long)
	e.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newRun(e), newClient(e), newServer(e), newFlood(e), newShow(e), newReport(), newCompare(e), newScenario(e), newWorker(),
		newDemo(), command.NewVersion(&e.Output, "headgate-bench", e.version),
	)
	command.RefuseUnknownShells(root)
	command.HelpOf(root)
	return root
}

func newShow(e *env) *cobra.Command {
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

// newWorker is what runs loads in the namespaces that bench makes.
func newWorker() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Run loads from standard input",
		Hidden: true,
		Args:   command.NoArgs,
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
	if e.IsJSON() {
		return report.Write(command.Printable(cmd.OutOrStdout()))
	}
	if err := report.WriteTable(command.Printable(cmd.OutOrStdout())); err != nil || file == "" {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "\nwritten to %s\n", file)
	return err
}

// Command returns the commands, for what describes them.
func Command(version string) *cobra.Command { return newRoot(&env{version: version}) }
