package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
)

const demoLong = `Demo shows Headgate at work on this machine and touches nothing of it.

It makes a node, a client pod and three backend pods in two zones as network
namespaces, a cgroup and a BPF file system of its own, runs the agent there on
the manifests of examples/, sends traffic to the Service in them, measures what
that costs, and takes an endpoint away while traffic flows. Everything is
removed at the end, on Ctrl-C too. It exits non-zero if anything is not as it
should be. It takes about 10 seconds and needs root.`

// newDemo returns the command "demo". The hidden subcommand "demo client" is
// what the clients of the demo run.
func newDemo() *cobra.Command {
	var hold bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Headgate at work in network namespaces of its own",
		Long:  demoLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the running program: %s", err)
			}
			d := &demo{program: program, size: fullDemo, screen: newScreen(cmd.OutOrStdout())}
			if hold {
				d.hold = cmd.InOrStdin()
			}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&hold, "hold", false, "before the end, wait for Enter to let a person look around")
	cmd.AddCommand(newDemoClient())
	return cmd
}

func newDemoClient() *cobra.Command {
	return &cobra.Command{
		Use:    "client",
		Short:  "Run jobs from standard input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return traffic.ServeJobs(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// demoSize is how much traffic a demo sends.
type demoSize struct {
	connections, datagrams int // to the ClusterIPs
	nodePort               int // connections to each address of the node
	rounds, batch          int // of connect() measurements of each kind
	rate                   int // connections a second while endpoints change
	// calm is how long traffic flows before, between and after the changes,
	// and how long a backend must see no connection to count as gone: so
	// long that it would see many otherwise.
	calm time.Duration
}

var fullDemo = demoSize{
	connections: 10_000, datagrams: 10_000, nodePort: 200, rounds: 120, batch: 50,
	rate: 600, calm: time.Second,
}

// demo is one run. Its methods are the steps of the story, in the files
// demo_*.go.
type demo struct {
	program string // what runs as agent, client and cleanup
	size    demoSize
	hold    io.Reader // a line from it ends the pause before the end, nil means no pause
	screen  *screen

	stage stage
	wrong []string // expectations that were not met
}

// run tells the story and cleans up, whatever happens.
func (d *demo) run(ctx context.Context) (err error) {
	// SIGPIPE too, as in "demo | head": the default would end us on the
	// spot, with everything left behind.
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	defer stop()
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and loads BPF programs: run it as root (sudo make demo)")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.stage.failed = cancel
	defer func() {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // what follows from it is of no interest
		}
		if err = errors.Join(err, d.stage.close()); err == nil {
			d.screen.line("Everything was as expected, and everything is removed again.")
		}
	}()
	return d.tell(ctx)
}

func (d *demo) tell(ctx context.Context) error {
	steps := []func(context.Context) error{
		d.makeNetwork, d.startAgent,
		d.sendTCP, d.sendUDP, d.sendNodePort, d.showAnswers,
		d.measureConnect,
		d.changeEndpoints,
		d.holdOn, d.stopAgent,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(d.wrong) > 0 {
		return fmt.Errorf("%d of the demo's expectations are not met, the first: %s", len(d.wrong), d.wrong[0])
	}
	return nil
}

// expect notes what should be and is not, and goes on: the rest of the story
// says more about the reason.
func (d *demo) expect(ok bool, format string, args ...any) {
	if !ok {
		d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
	}
}

// step shows a step while it runs and how it went. What it returns is shown
// behind its title.
func (d *demo) step(title string, do func(progress func(string)) (string, error)) error {
	before := len(d.wrong)
	end := d.screen.begin(title)
	detail, err := do(d.screen.progress)
	end(err == nil && len(d.wrong) == before, detail)
	for _, wrong := range d.wrong[before:] {
		d.screen.line("    expected: " + wrong)
	}
	return err
}
