package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// namePrefix begins the name of everything that bench makes outside itself,
// and runDir is where it would keep files.
const (
	namePrefix = "headgate-bench"
	runDir     = "/run"
)

const runLong = `Run makes a small network in network namespaces, with servers and a client, runs a
load there and removes everything, on Ctrl-C too. The next run removes what a killed one left
behind. No packet reaches the network of this machine. It needs root. The topologies are

%s
Without --target the client sends to the servers directly: that is the reference for
load balancers. --at runs commands while load flows. They find $TOPOLOGY in their
environment; the namespace of a machine is $TOPOLOGY-MACHINE, as ip netns lists it.`

// runFlags are the flags of "headgate-bench run".
type runFlags struct {
	loadFlags
	topology string
	servers  int
	family   string
	faults   serve.Faults
}

func newRun(e *env) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a load in network namespaces made for it",
		Long:  fmt.Sprintf(runLong, topologyList()),
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return e.run(cmd, &f) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.topology, "topology", "pair", "network that is made: "+strings.Join(topologyNames(), ", "))
	flags.IntVar(&f.servers, "servers", 3, "number of servers, spread over the machines for them")
	flags.StringVar(&f.family, "family", "4", "address family of the servers: 4, 6 or both")
	flags.StringSliceVar(&f.targets, "target", nil, "ADDRESS:PORT to send to instead of the servers, within the topology")
	flags.DurationVar(&f.faults.Delay, "server-delay", 0, "delay of each answer of the servers")
	flags.IntVar(&f.faults.DropEvery, "server-drop-every", 0, "the servers ignore each N-th request (0: none)")
	return cmd
}

func topologyNames() []string {
	var names []string
	for name := range traffic.TopologyNames() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func topologyList() string {
	var list strings.Builder
	for _, name := range topologyNames() {
		fmt.Fprintf(&list, "  %-6s %s\n", name, traffic.TopologyNames()[name])
	}
	return list.String()
}

// serverPort is the port of all servers of a topology.
const serverPort = 8080

func (e *env) run(cmd *cobra.Command, f *runFlags) (err error) {
	spec, actions, err := f.load(cmd)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"4", "6", "both"}, f.family) {
		return fmt.Errorf("--family %s: it is 4, 6 or both", lb.Quote(f.family))
	}
	if _, err := traffic.BuiltinTopology(f.topology, ""); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("run makes network namespaces: run it as root")
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running program: %s", err)
	}
	removed, err := removeStale()
	if len(removed) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "removed %d leftovers of a killed run\n", len(removed))
	}
	if err != nil {
		return err
	}
	site, err := load.NewSite(load.SiteSpec{
		Topology: f.topology, RunName: traffic.RunName(namePrefix), Servers: f.servers, Port: serverPort, Faults: f.faults,
		Worker: worker(program),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	if err := os.Setenv("TOPOLOGY", traffic.RunName(namePrefix)); err != nil {
		return err
	}
	if len(spec.Targets) == 0 {
		spec.Targets = site.Targets(f.family != "6", f.family != "4")
	}
	if !cmd.Flags().Changed("path") && spec.Response > 0 {
		spec.Path = fmt.Sprintf("/?bytes=%d", spec.Response)
	}
	// Where the client is, there is no way out of what was made for it.
	spec.Outside = true
	f.labels = withLabel(f.labels, "topology", f.topology)
	return e.measure(cmd, &f.loadFlags, site.Client.Run, spec, actions)
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[key] = value
	return labels
}

// benchWorker is the command of a client in a namespace.
func worker(program string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(program, "worker")
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// removeStale removes what runs left behind that were killed.
func removeStale() ([]string, error) {
	root, err := cgroup.Root()
	if err != nil {
		root = runDir // no cgroup2, no cgroups of ours
	}
	return traffic.RemoveStale(namePrefix, root, runDir)
}
