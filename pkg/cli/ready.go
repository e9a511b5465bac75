package cli

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
)

func newReady(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Ask the agent of this node whether it serves, as a readiness probe does",
		Long: `Asks the agent of this node whether it serves, by a socket in its state directory: the answer is
its own, even where another process holds the port of /healthz.

The exit code is 0 where it serves, and 1 where it does not or no agent runs.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.place().AskReady(cmd.Context()) },
	}
}
