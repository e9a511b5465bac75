package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const clientLong = `Client sends a load to given targets, from this network namespace and cgroup,
and prints the result. The kinds of load are

%s
All but connect and http need headgate-bench server at the other end. With --rate
operations are due at times that only the rate decides, and latency counts from
then: a server that stalls is late for all operations that were due meanwhile. On
Ctrl-C the client waits for operations under way and prints what it measured.`

func newClient(e *env) *cobra.Command {
	var f loadFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "client --target ADDRESS:PORT",
		Short: "Send a load to given targets",
		Long:  fmt.Sprintf(clientLong, kindList()),
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, actions, err := f.awaitLoad(cmd, wait)
			if err != nil {
				return err
			}
			return e.measure(cmd, &f, load.Run, spec, actions)
		},
	}
	f.add(cmd)
	f.addTargets(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for targets that do not answer yet")
	return cmd
}

func kindList() string {
	var list strings.Builder
	for _, k := range load.Kinds() {
		fmt.Fprintf(&list, "  %-7s  %s\n", k, k.What())
	}
	return list.String()
}

// measure runs a load and prints what came of it. It fails if not one operation
// succeeded: there is nothing measured then.
func (e *env) measure(cmd *cobra.Command, f *loadFlags, runner load.Runner, spec load.Spec, actions []load.Action) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	report := e.newReport()
	run, err := load.RunWith(cmd.Context(), runner, spec, actions)
	if err != nil {
		return err
	}
	run.Name, run.Labels = f.name, f.labels
	report.Runs = []result.Run{run}
	report.Meta.End()
	if err := e.printReport(cmd, f.output, report); err != nil {
		return err
	}
	if err := f.pictures.write(onePage(report)); err != nil {
		return err
	}
	if run.Done() == 0 && !run.Interrupted {
		return fmt.Errorf("measured nothing: none of %d operations succeeded", run.Due)
	}
	return nil
}
