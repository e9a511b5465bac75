package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
)

func newDiff(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "diff",
		Short: "Compare what the kernel holds with what the API server or the folder says",
		Long: `Has the agent of this node read back all maps and plan what it would write if it started now: nothing
where the kernel holds what the API server or the folder says, as the agent has heard it. Nothing is
written, and changes wait meanwhile, some tenths of a second with 10,000 Services. Each line is a
write that is missing, and the Service that it is for. A restart of the agent makes them.

The exit code is 0 where there is none, and 3 where there are some.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := e.place().AskDiff(cmd.Context())
			if err != nil {
				return err
			}
			t := command.Table{Value: command.ListOf("Difference", all)}
			for _, d := range all {
				t.Header = []string{"SERVICE", "MISSING WRITE"}
				t.Rows = append(t.Rows, []string{cmp.Or(d.Service, "-"), d.Write})
				t.Names = append(t.Names, "difference/"+d.Service)
			}
			if err := e.Print(cmd.OutOrStdout(), t); err != nil || len(all) == 0 {
				return err
			}
			return errDegraded
		},
	}
}
