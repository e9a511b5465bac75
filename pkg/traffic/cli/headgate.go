package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/command"
)

// addHeadgate adds the flag that names the load balancer's program.
func addHeadgate(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "headgate", "", "the headgate program to run (default: the one beside this program, or in PATH)")
}

// findHeadgate returns the load balancer's program: the one that is named, or
// the one at hand.
func findHeadgate(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	path, err := command.Beside("headgate")
	if err != nil {
		return "", fmt.Errorf("no headgate program is beside this one or in PATH: build it with make build, or name one with --headgate")
	}
	return path, nil
}
