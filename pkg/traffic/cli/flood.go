package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/raw"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const floodLong = `Flood sends packets that no socket sends, from a client in network namespaces made
for it: SYNs from a whole network, datagrams, or fragments without the rest of
their datagram. It is for drills and for finding limits. It sends only there: no flag
lets it send elsewhere.

Packets go through a ring shared with the kernel, or as live frames, which the
kernel makes itself. The result counts packets that arrive at the device next to
the client.`

type floodFlags struct {
	spec     raw.Spec
	kind     string
	method   string
	topology string
	target   string
	sources  string
	output   string
}

func newFlood(e *env) *cobra.Command {
	var f floodFlags
	cmd := &cobra.Command{
		Use:   "flood",
		Short: "Send SYNs, datagrams or fragments as fast as they go, in namespaces",
		Long:  floodLong,
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return e.flood(cmd, &f) },
	}
	kinds := make([]string, 0, len(raw.Kinds()))
	for _, k := range raw.Kinds() {
		kinds = append(kinds, string(k))
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", string(raw.SYN), "packets to send: "+strings.Join(kinds, ", "))
	flags.StringVar(&f.method, "method", string(raw.Ring), "how to send: ring, or live for live frames")
	flags.StringVar(&f.topology, "topology", "pair", "network that is made: "+strings.Join(topologyNames(), ", "))
	flags.StringVar(&f.target, "target", "", "ADDRESS:PORT in the network of the topology (default the first server)")
	flags.StringVar(&f.sources, "source", "", "prefix of the source addresses (default: the client's, 10.250.0.0/16 or fd00:250::/64)")
	flags.IntVar(&f.spec.Size, "size", 0, "size of a packet in bytes, with its Ethernet header (default: the smallest)")
	flags.Float64Var(&f.spec.Rate, "rate", 0, "packets per second (default: as many as possible)")
	flags.IntVar(&f.spec.Senders, "senders", 0, "sending threads (default: one per CPU)")
	flags.DurationVar(&f.spec.Duration, "duration", 5*time.Second, "how long to send")
	flags.StringVarP(&f.output, "output", "o", "", "file to write the result to, as JSON")
	return cmd
}

func (e *env) flood(cmd *cobra.Command, f *floodFlags) (err error) {
	if cmd.Flags().Changed("rate") && f.spec.Rate <= 0 {
		return fmt.Errorf("--rate %v: nothing would ever be sent; leave --rate out to send as much as goes", f.spec.Rate)
	}
	plan, err := traffic.BuiltinTopology(f.topology, traffic.RunName(namePrefix))
	if err != nil {
		return err
	}
	spec, err := f.resolve(cmd.Context(), plan)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("flood makes network namespaces: run it as root")
	}
	if _, err := removeStale(); err != nil {
		return err
	}
	topology, err := traffic.NewTopology(plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topology.Close()) }()
	spec.Namespace = topology.Namespace(plan.Client).Path()
	report := e.newReport()
	run, err := floodIn(cmd, topology, spec)
	if err != nil {
		return err
	}
	run.Labels = withLabel(nil, "topology", f.topology)
	report.Runs = []result.Run{run}
	report.Meta.End()
	return e.printReport(cmd, f.output, report)
}

// resolve returns what the flags say, with what the topology has for the rest.
func (f *floodFlags) resolve(ctx context.Context, plan traffic.TopologySpec) (raw.Spec, error) {
	spec := f.spec
	spec.Kind, spec.Method = raw.Kind(f.kind), raw.Method(f.method)
	_, servers := plan.ServerAddr(0)
	spec.Target = netip.AddrPortFrom(servers[0], serverPort)
	if f.target != "" {
		targets, err := parseTargets(ctx, []string{f.target})
		if err != nil {
			return spec, err
		}
		spec.Target = targets[0]
	}
	if f.sources != "" {
		sources, err := parseSources([]string{f.sources})
		if err != nil {
			return spec, err
		}
		spec.Sources = sources[0]
	} else {
		for _, p := range clientPrefixes(plan) {
			if p.Addr().Is4() == spec.Target.Addr().Is4() {
				spec.Sources = p
			}
		}
	}
	asked := spec
	asked.Namespace = "to come"
	return spec, asked.Validate()
}

func clientPrefixes(plan traffic.TopologySpec) []netip.Prefix {
	for _, m := range plan.Machines {
		if m.Name == plan.Client {
			return m.Prefixes
		}
	}
	return nil
}

// floodIn sends a flood, and counts what arrives next to the client.
func floodIn(cmd *cobra.Command, topology *traffic.Topology, spec raw.Spec) (result.Run, error) {
	machine, device := topology.NextToClient()
	if spec.Method == raw.Live {
		if err := raw.EnableGRO(topology.Namespace(machine).Path(), device); err != nil {
			return result.Run{}, err
		}
	}
	before, err := topology.Received(machine, device)
	if err != nil {
		return result.Run{}, err
	}
	run, err := raw.Run(cmd.Context(), spec)
	if err != nil {
		return result.Run{}, err
	}
	after, err := topology.Received(machine, device)
	if err != nil {
		return result.Run{}, err
	}
	received := min(after-before, run.Completed)
	run.Packets = &result.Packets{Sent: run.Completed, Received: received}
	if lost := run.Completed - received; lost > 0 {
		run.Errors = map[result.ErrorKind]uint64{result.Lost: lost}
		run.Failed, run.Completed, run.InTime = lost, received, received
	}
	if run.Interrupted {
		return run, nil
	}
	ceiling, err := raw.Ceiling(cmd.Context(), spec)
	if err != nil {
		return result.Run{}, err
	}
	run.SetCeiling(ceiling)
	return run, nil
}
