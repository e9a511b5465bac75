package cli

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/preflight"
	"github.com/headgate/headgate/pkg/source/manifest"
)

func newCheck(e *env) *cobra.Command {
	o := &agentOptions{}
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Look at a node and its cluster before anything is installed",
		Long: `Looks at the kernel, the network, other programs and the API server as an agent with the same
flags would meet them, and prints a line for each: ok, warning or failure, what was found, and
what to do about it. Nothing is changed. docs/check.md explains every finding.

The exit code is 0 without a failure, 3 with one, and 1 for other errors, such as a bad flag.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.check(cmd, e) },
	}
	o.addFlags(cmd)
	return cmd
}

func (o *agentOptions) check(cmd *cobra.Command, e *env) error {
	if err := o.readConfig(cmd.Flags()); err != nil {
		return err
	}
	if err := o.settle(cmd.Flags()); err != nil {
		return err
	}
	o.Datapath.Root, o.Version = e.bpfRoot, e.version
	report := preflight.Run(cmd.Context(), o.preflight())
	if err := e.Print(cmd.OutOrStdout(), table(report)); err != nil || report.Failures == 0 {
		return err
	}
	return errDegraded
}

// preflight returns what is to be looked at.
func (o *agentOptions) preflight() preflight.Config {
	cfg := preflight.Config{
		Datapath: o.Datapath, Devices: o.Devices, Keys: o.CheckKeys,
		Addresses: []preflight.Address{{Flag: "--healthz-bind-address", Value: o.HealthzAddress, Health: true}, {Flag: "--metrics-bind-address", Value: o.MetricsAddress}},
	}
	if o.Manifests != "" {
		cfg.Manifests = manifest.New(o.Manifests, o.NodeName).Convert(o.Convert).Check
	} else if o.namesCluster() {
		api := o.Cluster()
		cfg.Kube = &api
	}
	return cfg
}

func table(r preflight.Report) command.Table {
	t := command.Table{Value: r}
	for _, f := range r.Findings {
		found := f.Found
		if f.Remedy != "" {
			found += "; " + f.Remedy
		}
		t.Rows = append(t.Rows, []string{string(f.Level), f.Name, found})
	}
	return t
}
