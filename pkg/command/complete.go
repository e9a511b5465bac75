package command

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CompleteFlag has a shell complete the value of a flag from these words.
func CompleteFlag(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails for no flag, or twice
}

// CompleteFlags does so for all flags, of a command and those below it, that know what
// they take.
func CompleteFlags(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		if of, ok := f.Value.(interface{ Words() []string }); ok {
			CompleteFlag(cmd, f.Name, of.Words())
		}
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
	for _, below := range cmd.Commands() {
		CompleteFlags(below)
	}
}
