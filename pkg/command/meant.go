package command

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMeant returns the flag whose name is nearly the one that there is not; "" where none is, or several.
func flagMeant(cmd *cobra.Command, err error) string {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || len(missing.GetSpecifiedName()) < 2 { // of one letter any is meant
		return ""
	}
	names := &cobra.Command{SuggestionsMinimumDistance: 2} // letters; cobra knows how near words are, of commands
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	meant := slices.Compact(slices.Sorted(slices.Values(names.SuggestionsFor(missing.GetSpecifiedName()))))
	if len(meant) != 1 {
		return ""
	}
	return meant[0]
}

// OneOfBoth has a command refuse two flags together.
func OneOfBoth(cmd *cobra.Command, one, other string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
			return fmt.Errorf("--%s and --%s exclude each other: write one of them", one, other)
		}
		return nil
	}
}

// HelpOf has help end with an error for a command that there is not, as the command itself does.
func HelpOf(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run = nil
			c.RunE = func(_ *cobra.Command, words []string) error {
				about, rest, err := root.Find(words)
				if err != nil || len(rest) > 0 && about.HasSubCommands() {
					return NoSuchCommand(about, rest)
				}
				about.InitDefaultHelpFlag()
				return about.Help()
			}
		}
	}
}
