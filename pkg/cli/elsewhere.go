package cli

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
)

// benchProgram is the traffic generator: a program of its own, so that what is
// privileged in a cluster links no plots and no packet makers.
const benchProgram = "headgate-bench"

// newElsewhere returns a command that the traffic generator has: it runs that
// program in place of this one, with the same arguments.
func newElsewhere(name, short string) *cobra.Command {
	run := func(args []string) error {
		program, err := command.Beside(benchProgram)
		if err != nil {
			return fmt.Errorf("%s is a command of %s, which is neither beside this program nor in PATH: build it with make build", name, benchProgram)
		}
		if name != "bench" {
			args = append([]string{name}, args...)
		}
		return syscall.Exec(program, append([]string{benchProgram}, args...), os.Environ())
	}
	cmd := &cobra.Command{
		Use:                name,
		Short:              short,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return run(args) },
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // of headgate help bench
		if err := run([]string{"--help"}); err != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s\n", short, err)
		}
	})
	return cmd
}
