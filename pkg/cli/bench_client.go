package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const benchClientLong = `Client sends a load to given targets, from this network namespace and cgroup,
and prints what came of it. The kinds of load are

  connect  TCP connect() and reset: any server will do
  crr      connect, request, response, close
  rr       request and response on TCP connections that are kept
  bulk     as many bytes over TCP as go
  udp      request and response on UDP sockets
  packets  UDP datagrams one way; the servers say how many arrived
  http     GET over HTTP/1.1, from any server

All but connect and http need headgate bench server at the other end. With --rate
operations are due at times that only the rate decides, and latency counts from
then, so a server that stalls is late for all that were due meanwhile. Ctrl-C
prints what was measured.`

func newBenchClient(e *env) *cobra.Command {
	var f loadFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "client --target ADDRESS:PORT",
		Short: "Send a load to given targets",
		Long:  benchClientLong,
		Args:  noArgs,
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
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for targets that are not there yet")
	return cmd
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
