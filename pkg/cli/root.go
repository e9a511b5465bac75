// Package cli is the command line: one file for each noun or verb. Nouns show
// what is there, verbs change it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
)

// env is the world that commands see, and the flags that all of them have.
type env struct {
	version string
	bpfRoot string
	state   string // directory
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
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		fmt.Fprintf(stderr, "headgate: %s\n", strings.Join(lines, "; "))
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

Nouns (status, frontend, backend, table, flow, map) show what the kernel holds, whether
or not an agent runs. Verbs (agent, cleanup, demo, bench) act.`,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; %s --help lists the flags", explainFlag(err), cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&e.bpfRoot, "bpf-root", datapath.DefaultRoot, "directory in a BPF file system where maps and programs are pinned")
	flags.StringVar(&e.state, "state-dir", orDefault(os.Getenv("STATE_DIRECTORY"), agent.DefaultStateDir), "directory where an agent keeps what outlives it: its report, and addresses of API servers")
	flags.BoolVarP(&e.json, "json", "j", false, "print JSON")
	flags.BoolVarP(&e.pretty, "pretty", "p", false, "print indented JSON")
	root.AddCommand(
		newAgent(e), newCleanup(e), newDemo(), newBench(e),
		newStatus(e), newFrontend(e), newBackend(e), newTable(e), newFlow(e), newMap(e), newVersion(e),
	)
	return root
}

// noun returns a command that shows something: alone it does what the first of
// its commands does, as in bpftool.
func noun(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: noSuchCommand, RunE: commands[0].RunE}
	cmd.AddCommand(commands...)
	return cmd
}

// noSuchCommand refuses arguments where a command would stand.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q: %s has %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// explainFlag says of a value that a flag does not take what it takes.
func explainFlag(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	takes := flag.Value.Type()
	switch takes {
	case "uint32":
		takes = fmt.Sprintf("a whole number up to %d", uint32(math.MaxUint32))
	case "bool":
		takes = "true or false"
	}
	return fmt.Errorf("--%s takes %s, not %q", flag.Name, takes, invalid.GetValue())
}
