package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
)

// logLevel is what headgate log-level says.
type logLevel struct {
	command.Type
	agent.LogLevel
}

func newLogLevel(e *env) *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "log-level [{debug | info | warn | error}]",
		Short: "Show or set from which severity on the running agent logs",
		Long: `Shows from which severity on the agent of this node logs, or sets it: until the agent ends, or with
--for for some time. Then the level of --log-level is in force again.`,
		Args:      atMostOne,
		ValidArgs: agent.LogLevels,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			said := logLevel{Type: command.TypeOf("LogLevel")}
			switch {
			case lasts < 0:
				return fmt.Errorf("--for takes a duration such as 10m, not %s", lasts)
			case len(args) == 0 && lasts != 0:
				return errors.New("--for: which level? Write headgate log-level debug --for 10m")
			case len(args) == 0:
				said.LogLevel, err = e.place().AskLogLevel(cmd.Context())
			default:
				said.LogLevel, err = e.place().SetLogLevel(cmd.Context(), args[0], lasts)
			}
			if err != nil {
				return err
			}
			return e.Print(cmd.OutOrStdout(), command.Table{Rows: [][]string{{said.text()}}, Value: said})
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "for so long, such as 10m (default: until the agent ends)")
	return cmd
}

func (l logLevel) text() string {
	switch {
	case !l.Until.IsZero():
		return fmt.Sprintf("%s until %s, then %s", l.Level, l.Until.UTC().Format(time.RFC3339), l.Usual)
	case l.Level != l.Usual:
		return fmt.Sprintf("%s until the agent ends, then %s", l.Level, l.Usual)
	default:
		return l.Level
	}
}
