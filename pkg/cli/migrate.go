package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/migrate"
)

// migrateOptions are the flags of headgate migrate.
type migrateOptions struct {
	migrate.Config
	migrate.Options
}

func newMigrate(e *env) *cobra.Command {
	o := &migrateOptions{}
	look := &cobra.Command{
		Use: "status", Short: "Show what of kube-proxy is left on this node, and what still goes through it",
		Long: `Shows the kube-proxy of this node, its rules and who keeps them, connections and sockets that
still go through them, and who answers on the ports of health checks and metrics.

The exit code is 0 where Headgate serves and nothing of kube-proxy is left, 3 where that is not so,
and 1 for errors.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd, e) },
	}
	run := &cobra.Command{
		Use: "run", Short: "Lead this node from kube-proxy to Headgate, in the order that loses nothing",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.lead(cmd, e, migrate.Forth) },
	}
	back := &cobra.Command{
		Use: "back", Short: "Lead this node from Headgate to kube-proxy, in the order that loses nothing",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.lead(cmd, e, migrate.Back) },
	}
	for _, way := range []*cobra.Command{run, back} {
		way.Long = way.Short + `.
Each step is checked before the next one. What others have to do, such as ending kube-proxy,
is said and waited for. It may be ended at any moment and run again: it goes on where the
node is. docs/migrate.md explains the steps.

The exit code is 0 when all steps are done, 3 when others have not done their part within --wait,
and 1 for errors, also of a step, which the next run tries again.`
		way.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
		way.Flags().Var(atLeast(&o.Wait, time.Minute, 0), "wait", "how long to wait for what others have to do")
	}
	run.Flags().BoolVar(&o.LeaveSockets, "leave-sockets", false, "tell no connected UDP socket: those of kube-proxy's time are lost with their backend, until their programs are restarted")
	run.Flags().BoolVar(&o.EndConnections, "end-connections", false, "do not wait for TCP connections of kube-proxy's time: they may break")
	run.Flags().Var(atLeast(&o.KeepConnections, 7*24*time.Hour, 0), "keep-connections", "how long to keep TCP connections of kube-proxy's time working at most, from when its rules were to go; 0 for as long as there are any")
	cmd := &cobra.Command{
		Use: "migrate", Short: "Lead this node from kube-proxy to Headgate, and back (status, run, back)",
		Args: command.NoSuchCommand, RunE: look.RunE,
	}
	cmd.AddCommand(look, run, back)
	flags := cmd.PersistentFlags()
	flags.Var(listensAt(&o.Healthz, "0.0.0.0:10256"), "healthz-bind-address", "host:port where load balancers and the kubelet ask, of kube-proxy and the agent, \"\" for nowhere")
	flags.Var(listensAt(&o.Metrics, "127.0.0.1:10249"), "metrics-bind-address", "host:port of metrics, of both, \"\" for nowhere")
	return cmd
}

// listenAddress is a flag that takes where a process of the node listens.
type listenAddress struct{ to *string }

// listensAt is an address with a default.
func listensAt(to *string, usual string) listenAddress {
	*to = usual
	return listenAddress{to}
}

// Set implements pflag.Value.
func (l listenAddress) Set(s string) error {
	host, port, err := net.SplitHostPort(s)
	if host == "" {
		host = "::" // of each family
	}
	if s != "" && (err != nil || !isPort(port) || !isAddress(host)) {
		return errNotTaken
	}
	*l.to = s
	return nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// String implements pflag.Value.
func (l listenAddress) String() string { return *l.to }

// Type implements pflag.Value.
func (l listenAddress) Type() string { return "string" }

// Takes says what the flag takes.
func (l listenAddress) Takes() string {
	return `an IP address and a port such as 0.0.0.0:10256, or "" for nowhere`
}

func (o *migrateOptions) config(e *env) migrate.Config {
	cfg := o.Config
	cfg.Root, cfg.Ready = e.bpfRoot, func(ctx context.Context) error { return e.place().AskReady(ctx) }
	cfg.HealthPorts = func() ([]uint16, error) { return agent.HealthPorts(e.state, e.bpfRoot) }
	return cfg
}

func (o *migrateOptions) status(cmd *cobra.Command, e *env) error {
	s, err := migrate.Look(cmd.Context(), o.config(e))
	if err != nil {
		return needsRoot(err)
	}
	if err := e.Print(cmd.OutOrStdout(), statusTable(s)); err != nil || s.Clean() {
		return err
	}
	return errDegraded
}

func statusTable(s migrate.Status) command.Table {
	t := command.Table{Value: s}
	row := func(words ...string) { t.Rows = append(t.Rows, words) }
	serves := s.Agent
	if serves == "" {
		serves = "the agent serves"
	}
	row("headgate", serves)
	row("kube-proxy", s.KubeProxy.String())
	for _, r := range s.Rules {
		row("rules", r.String())
	}
	if len(s.Rules) == 0 {
		row("rules", "none of kube-proxy")
	}
	switch {
	case s.KeepsNAT:
		row("translation", "kept for connections of kube-proxy's time"+sinceWhen(s.NATSince))
	case s.LastNAT:
		row("translation", "kube-proxy's alone: it ends with its rules")
	}
	for _, p := range s.Ports {
		row("port", p.String())
	}
	if !s.Loaded {
		row("connections", "not known: Headgate is not loaded, so that nobody here knows the Services")
		return t
	}
	for _, p := range []lb.Protocol{lb.TCP, lb.UDP} {
		row("connections", fmt.Sprintf("%d of %s go through kube-proxy's rules", s.Connections[p.String()], p))
	}
	for _, u := range s.Sockets {
		row("socket", fmt.Sprintf("%s %s to %s, in network namespace %d", u.Protocol, u.Local, u.Frontend, u.Netns))
	}
	return t
}

// sinceWhen says so, and nothing of a time that is not known.
func sinceWhen(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + t.Format(time.RFC3339)
}

// lead goes a way, and says each step as it comes.
func (o *migrateOptions) lead(cmd *cobra.Command, e *env, way func(context.Context, migrate.Config, migrate.Options) ([]migrate.Progress, error)) error {
	out := command.Printable(cmd.OutOrStdout())
	if !e.ForPrograms() && !o.DryRun {
		o.Say = func(p migrate.Progress) { sayProgress(out, p) }
	}
	steps, err := way(cmd.Context(), o.config(e), o.Options)
	if err != nil {
		return needsRoot(err)
	}
	stopped, waits := migrate.Unfinished(steps)
	finished := !waits
	if e.ForPrograms() || o.DryRun {
		t := command.Table{Value: struct {
			Finished bool               `json:"finished"`
			Steps    []migrate.Progress `json:"steps"`
		}{finished, steps}}
		for _, p := range steps {
			t.Rows = append(t.Rows, []string{string(p.State), p.Step, found(p)})
		}
		if err := e.Print(cmd.OutOrStdout(), t); err != nil {
			return err
		}
	}
	switch {
	case finished:
		return nil
	case stopped.State == migrate.Failed:
		return needsRoot(fmt.Errorf("%s: %s; %s, by running this again", stopped.Step, stopped.Found, stopped.Todo))
	case o.Say != nil:
		fmt.Fprintf(out, "%s is not done after --wait %s; do what it says and run this again: it goes on from here\n", stopped.Step, o.Wait)
	}
	return errDegraded
}

func sayProgress(w io.Writer, p migrate.Progress) {
	fmt.Fprintf(w, "%s  %-7s  %-18s  %s\n", time.Now().UTC().Format("15:04:05.000"), p.State, p.Step, found(p))
}

// found is what was found, and what is to be done.
func found(p migrate.Progress) string {
	if p.Todo == "" {
		return p.Found
	}
	return p.Found + "; " + p.Todo
}
