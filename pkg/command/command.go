// Package command is what the command lines of both programs, headgate and
// headgate-bench, have in common: how they run, end, refuse and print.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/lb"
)

// ErrSilent ends a command that has said already what is wrong.
var ErrSilent = errors.New("")

// ExitWrong is the exit code of wrong use, and of what cannot be done.
const ExitWrong = 1

// Run runs a command line and returns the exit code of the process: 0, or that
// of the error, with one line on stderr. SIGINT and SIGTERM end the context of
// the command.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer, exitCode func(error) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, ErrSilent) {
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), lb.Printable(strings.Join(lines, "; ")))
	}
	return exitCode(err)
}

// NewRoot returns the command that all others of a program are below. Alone it
// prints its help.
func NewRoot(name, version, short, long string) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Long:          long,
		Version:       version,
		Args:          NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if meant := flagMeant(cmd, err); meant != "" {
			return fmt.Errorf("%w: did you mean --%s?", ExplainFlag(err), meant)
		}
		return fmt.Errorf("%w; %s --help lists the flags", ExplainFlag(err), cmd.CommandPath())
	})
	return root
}

// RefuseUnknownShells has completion end with an error for a shell that it does
// not know.
func RefuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = NoSuchCommand
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// NoSuchCommand refuses arguments where a command would stand.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if len(args) > 1 { // as kubectl has them, the verb first
		if noun, _, err := cmd.Find(args[1:2]); err == nil && noun.HasSubCommands() && noun != cmd {
			return fmt.Errorf("unknown command %s: the noun comes first, as in %s list", lb.Quote(args[0]), noun.CommandPath())
		}
	}
	cmd.SuggestionsMinimumDistance = 2 // letters
	if len(args[0]) < 4 {              // short words are near to all
		cmd.SuggestionsMinimumDistance = 1
	}
	if meant := cmd.SuggestionsFor(args[0]); len(meant) == 1 {
		return fmt.Errorf("unknown command %s: did you mean %s?", lb.Quote(args[0]), meant[0])
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %s: %s has %s", lb.Quote(args[0]), cmd.CommandPath(), strings.Join(names, ", "))
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %s; see %s --help", lb.Quote(args[0]), cmd.CommandPath())
	}
	return nil
}

// ExplainFlag says of a value that a flag does not take what the flag takes. What is long
// of the command line is cut.
func ExplainFlag(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag := invalid.GetFlag()
		return fmt.Errorf("--%s takes %s, not %s", flag.Name, takes(flag.Value), lb.Quote(invalid.GetValue()))
	}
	words := strings.Split(err.Error(), " ")
	for i := range words {
		words[i] = lb.Cut(words[i])
	}
	return errors.New(strings.Join(words, " "))
}

// takes says what a flag takes, in words of its own if it has some.
func takes(value pflag.Value) string {
	if own, ok := value.(interface{ Takes() string }); ok {
		return own.Takes()
	}
	switch kind := value.Type(); kind {
	case "uint32":
		return fmt.Sprintf("a whole number up to %d", uint32(math.MaxUint32))
	case "bool":
		return "true or false"
	case "number":
		return "a number"
	case "duration":
		return "a duration such as 30s"
	default:
		return kind
	}
}
