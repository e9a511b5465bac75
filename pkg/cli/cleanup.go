package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
)

func newCleanup(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Take everything out of the kernel",
		Long: `Detaches the programs and removes the maps that are pinned below --bpf-root. Connections
stay as they are. It is refused while an agent runs.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := datapath.Cleanup(e.bpfRoot); err != nil {
				return fmt.Errorf("clean up: %w", err)
			}
			return nil
		},
	}
}
