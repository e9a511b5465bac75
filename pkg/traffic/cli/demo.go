package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic/demo"
)

const demoLong = `Demo shows Headgate at work on this machine, in namespaces of its own.

It makes a node, a client pod and three backend pods in two zones as network
namespaces, a cgroup and a BPF file system of its own, runs the agent there on
the manifests of examples/, sends traffic to the Service in them, measures what
that costs, and takes an endpoint away while traffic flows. Everything is
removed at the end, on Ctrl-C too. It exits with 1 if an expectation is not met.
It takes about 10 seconds and needs root.`

// newDemo returns the command "demo".
func newDemo() *cobra.Command {
	var hold bool
	var headgate string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Headgate at work in network namespaces of its own",
		Long:  demoLong,
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			headgate, err := findHeadgate(headgate)
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the running program: %s", err)
			}
			var until io.Reader
			if hold {
				until = cmd.InOrStdin()
			}
			return demo.Run(cmd.Context(), headgate, worker(self), cmd.OutOrStdout(), until)
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "wait for Enter before the end, to look around")
	addHeadgate(cmd.Flags(), &headgate)
	return cmd
}
