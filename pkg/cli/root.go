// Package cli is the command line: one file for each noun or verb. Nouns show
// what is there, verbs change it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
)

// env is the world that commands see, and the flags that all of them have.
type env struct {
	version string
	bpfRoot string
	json    bool
	pretty  bool
}

// Run runs a command line and returns the exit code of the process: 0, or 1
// with one line on stderr.
func Run(args []string, version string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRoot(&env{version: version})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(stderr, "headgate: %v\n", err)
	}
	return 1
}

// errSilent ends a command that has said already what is wrong.
var errSilent = errors.New("")

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "Kubernetes Services, balanced in the kernel",
		Long: `Headgate balances Kubernetes Services in the kernel, beside any CNI.

Nouns (status, frontend, backend, table, map) show what the kernel holds, whether
or not an agent runs. Verbs (agent, cleanup, demo) change it.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&e.bpfRoot, "bpf-root", datapath.DefaultRoot, "directory in a BPF file system where maps and programs are pinned")
	flags.BoolVarP(&e.json, "json", "j", false, "print JSON")
	flags.BoolVarP(&e.pretty, "pretty", "p", false, "print indented JSON")
	root.AddCommand(
		newAgent(e), newCleanup(e), newDemo(),
		newStatus(e), newFrontend(e), newBackend(e), newTable(e), newMap(e), newVersion(e),
	)
	return root
}
