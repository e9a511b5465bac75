package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/migrate"
)

func TestTheExitCodeOfAWaySaysWhoseTurnItIs(t *testing.T) {
	done := migrate.Progress{Step: "ours", State: migrate.Done}
	for _, tc := range []struct {
		state     migrate.State
		code      int
		said, err string
	}{
		{migrate.Done, 0, "", ""},
		{migrate.Waits, exitDegraded, "theirs is not done after --wait 0s; do what it says and run this again: it goes on from here\n", "degraded"},
		{migrate.Failed, command.ExitWrong, "", "theirs: no right; do it, by running this again"},
	} {
		var out strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		cmd.SetContext(t.Context())
		err := (&migrateOptions{}).lead(cmd, &env{}, func(context.Context, migrate.Config, migrate.Options) ([]migrate.Progress, error) {
			return []migrate.Progress{done, {Step: "theirs", State: tc.state, Found: "no right", Todo: "do it"}}, nil
		})
		code, words := 0, ""
		if err != nil {
			code, words = exitCode(err), err.Error()
		}
		if code != tc.code || !strings.HasPrefix(words, tc.err) || (tc.err == "") != (err == nil) || out.String() != tc.said {
			t.Errorf("%s: exit code %d, error %q, said %q; want %d, %q, %q", tc.state, code, words, out.String(), tc.code, tc.err, tc.said)
		}
	}
}
