package cli

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// flagGroup is flags of the agent that the help shows together.
type flagGroup struct {
	title string
	add   func(*pflag.FlagSet)
}

// addFlags gives the command its flags, and a help that shows them in groups. The usage of a flag is a
// line for --help, and behind a line break what --help=all says besides.
func (o *agentOptions) addFlags(cmd *cobra.Command) {
	groups := []flagGroup{
		{"Sources", o.addSource},
		{"Traffic", o.addTraffic},
		{"Balancing", o.addBalancing},
		{"Policy", o.addPolicy},
		{"Limits", o.addLimits},
		{"Operation", o.addOperation},
		{"kube-proxy (docs/kube-proxy.md; flags without effect are accepted)", o.proxyFlags.AddTo},
	}
	sets := make([]*pflag.FlagSet, len(groups))
	for i, g := range groups {
		sets[i] = pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		g.add(sets[i])
		cmd.Flags().AddFlagSet(sets[i])
	}
	var topic helpTopic
	cmd.Flags().VarPF(&topic, "help", "h", "help for "+cmd.Name()).NoOptDefVal = string(helpShort)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		for i, g := range groups {
			if ofProxy := i == len(groups)-1; topic == helpAll || ofProxy == (topic == helpProxy) {
				fmt.Fprintf(out, "\n%s:\n%s", g.title, topic.usages(sets[i]))
			}
		}
		fmt.Fprintf(out, "\nEvery command:\n%s", cmd.InheritedFlags().FlagUsages())
		if topic != helpAll {
			fmt.Fprintf(out, "\n--help=kube-proxy lists the flags of kube-proxy, --help=all explains all flags.\n")
		}
		return nil
	})
}

// helpTopic is the value of --help of a command with the agent's flags, empty without --help.
type helpTopic string

const (
	helpShort helpTopic = "true"
	helpProxy helpTopic = "kube-proxy"
	helpAll   helpTopic = "all"
)

// Set implements pflag.Value.
func (h *helpTopic) Set(s string) error {
	switch t := helpTopic(s); t {
	case helpShort, helpProxy, helpAll:
		*h = t
		return nil
	}
	return errNotTaken
}

// Takes says what the flag takes.
func (h *helpTopic) Takes() string { return fmt.Sprintf("%s, %s, or no value", helpProxy, helpAll) }

// String implements pflag.Value. Cobra reads it as that of a boolean.
func (h *helpTopic) String() string { return strconv.FormatBool(*h != "") }

// Type implements pflag.Value.
func (h *helpTopic) Type() string { return "bool" }

// usages returns the lines of flags.
func (h *helpTopic) usages(flags *pflag.FlagSet) string {
	if *h == helpAll {
		return flags.FlagUsages()
	}
	short := pflag.NewFlagSet("", pflag.ContinueOnError)
	short.SortFlags = flags.SortFlags
	flags.VisitAll(func(f *pflag.Flag) {
		line := *f
		line.Usage, _, _ = strings.Cut(f.Usage, "\n")
		short.AddFlag(&line)
	})
	return short.FlagUsages()
}

func (o *agentOptions) addSource(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "config", "", "YAML file of these flags, or a KubeProxyConfiguration\nsets flags by name; the command line has precedence")
	f.StringVar(&o.Manifests, "manifests", "", "directory of Kubernetes YAML or JSON, in place of an API server")
	f.StringSliceVar(&o.Kube.Servers, "api-servers", nil, "URLs of API servers, tried in turn\nin place of the one in the kubeconfig or of its Service")
	f.StringVar(&o.Kube.TLSServerName, "tls-server-name", "", "name in the certificates of the API servers\ndefault: that of the kubeconfig")
	f.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node (default: $NODE_NAME, or the host name)\nthe host name is taken in lower case")
}

func (o *agentOptions) addTraffic(f *pflag.FlagSet) {
	f.StringVar(&o.Datapath.Cgroup, "cgroup", "", "cgroup2 directory of balanced processes (default: the root)")
	f.StringSliceVar(&o.Devices, "devices", nil, "devices on which others reach the node (default: found)\nnames or patterns; by default those that lead to other hosts, see docs/paths.md")
	f.Var(oneOf(&o.PodDevices, agent.PodDevicesNone, agent.PodDevicesNone, agent.PodDevicesMarked, agent.PodDevicesAll), "pod-devices", "balance at devices of pods: none, marked, all\nmarked: pods with the annotation headgate.dev/socket-balancing: off, or a runtime class of --pod-runtime-classes")
	f.StringSliceVar(&o.Convert.RuntimeClasses, "pod-runtime-classes", nil, "runtime classes of pods with other sockets, such as kata\ntheir sockets are not the node's")
	f.Var(oneOf(&o.Forwarding, agent.ForwardingSNAT, agent.ForwardingSNAT, agent.ForwardingMarked, agent.ForwardingDSR), "forwarding", "forward to other nodes by: snat, marked, dsr\nsnat: from an address of this node\nmarked: carry packets of Services with the annotation headgate.dev/forwarding: dsr unchanged to the node of the backend, which answers itself\ndsr: carry those of all Services but those that say snat")
	f.Var(oneOf(&o.Encapsulation, agent.EncapsulationUDP, agent.EncapsulationUDP, agent.EncapsulationIPIP), "dsr-encapsulation", "outer header to backends outside: udp, ipip\nwith --manifests alone; udp is port 6635 without a proof; nodes carry to each other over UDP with a proof")
	f.Var(oneOf(&o.OuterFamily, agent.OuterIPv4, agent.OuterIPv4, agent.OuterIPv6), "dsr-family", "family of outer headers: ipv4, ipv6\nchooses if two nodes have InternalIPs of both families; nodes take both")
	f.BoolVar(&o.Datapath.Redirect, "redirect", false, "send directly to other nodes, past the network stack\nand past its filters")
	f.StringSliceVar(&o.xdp, "xdp", []string{xdpOff}, "devices of native XDP: off, auto, or names\ntheir driver sends on what follows in flows to other nodes; patterns, too; implies --redirect")
	f.BoolVar(&o.Datapath.Filters, "filters", false, "attach by filters (clsact), as on kernels without tcx")
	f.BoolVar(&o.Datapath.Traffic, "traffic", true, "count bytes, packets, failures, connect times\nof Services and backends")
	f.BoolVar(&o.NodePortLoopback, "nodeport-loopback", true, "answer NodePorts on 127.0.0.1 and ::1\nto processes in the node's network namespace, unless --nodeport-addresses leaves loopback out")
	f.StringSliceVar(&o.serviceCIDRs, "service-cidrs", nil, "prefixes of Services (default: the API server's ServiceCIDRs)\nconnections to unassigned addresses in them are refused")
}

func (o *agentOptions) addBalancing(f *pflag.FlagSet) {
	f.StringVar(&o.DSRKeyFile, "dsr-key-file", "", "file with one or two keys of DSR, a line each\nthe node proves what it carries by the first key, and accepts both; default: the secret of --hash-key-file")
	f.Var(oneOf(&o.Algorithm, lb.Random.String(), lb.Algorithms()...), "algorithm", "algorithm of Services that name none\nby the annotation headgate.dev/algorithm: "+strings.Join(lb.Algorithms(), ", "))
	f.BoolVar(&o.passiveHealth, "passive-health", true, "avoid backends that fail\nfor Services without the annotation headgate.dev/passive-health")
	f.Var(within(&o.Datapath.EjectAfter, 3, 0, math.MaxUint8), "eject-after", "failed connections in a row that eject, 0: never")
	f.Var(within(&o.Datapath.MaxEjected, 50, 0, 100), "max-ejected-percent", "largest share of a Service's backends to avoid\nin percent")
	f.StringVar(&o.HashKeyFile, "hash-key-file", "", "file with the secret of hashes, the same on all nodes\n--forwarding marked and dsr need it; default: a secret of this node, made once and kept in --state-dir")
}

func (o *agentOptions) addPolicy(f *pflag.FlagSet) {
	f.StringVar(&o.externalIPs, "external-ips", offNode, "external IPs: off-node, allow, deny, or prefixes\noff-node: no addresses of this node; allow: these, too; prefixes are separated by commas; docs/install.md says what is refused besides (CVE-2020-8554)")
	f.StringVar(&o.probes, "probes", "deny", "probes of backends: allow, deny, or prefixes\nthat Services ask for with headgate.dev/probe; prefixes are separated by commas")
}

func (o *agentOptions) addLimits(f *pflag.FlagSet) {
	f.Var(powerOfTwo(&o.Datapath.SocketEntries, datapath.DefaultSocketEntries), "socket-entries", "socket NAT entries in the fast map\n64 bytes each, others are in socket storage; a power of two")
	f.Var(within(&o.Datapath.Affinities, datapath.DefaultAffinities, 1, math.MaxUint32), "affinities", "clients with session affinity that are remembered")
	f.Var(orZero(&o.Datapath.Flows, "one per 64 KiB of memory", minFlows), "flows", "entries for flows (default 0: one per 64 KiB of memory)\ntwo to four per flow of packets, at least 1,024")
	f.Var(portsFrom(&o.Datapath.SNATPorts, datapath.DefaultSNATPorts), "snat-ports", "first and last source port to other nodes\nports that the node's own sockets choose are taken last")
	f.Var(within(&o.Limits.Frontends, defaultLimits.Frontends, 0, math.MaxUint32), "max-frontends", "entries of the frontends map, 0: no limit")
	f.Var(within(&o.Limits.Slots, defaultLimits.Slots, 0, math.MaxUint32), "max-slots", "slots of the slots map, 0: no limit")
	f.Var(within(&o.Limits.Backends, defaultLimits.Backends, 0, math.MaxUint32), "max-backends", "entries of the backends map, 0: no limit")
	f.Var(within(&o.Limits.Services, defaultLimits.Services, 0, math.MaxUint32), "max-services", "entries of the services map, 0: no limit")
}

func (o *agentOptions) addOperation(f *pflag.FlagSet) {
	f.BoolVar(&o.MetricsPerBackend, "metrics-per-backend", false, "export metrics for every backend and Service port\ndefault: at most 1,000 backends that fail, and those of algorithms that compare load")
	f.Var(within(&o.MetricsServices, 100, 0, math.MaxUint32), "metrics-services", "most Service ports with metrics\nthose with the most traffic; 0: none")
	f.StringVar(&o.MetricsTLS.CertFile, "metrics-tls-cert-file", "", "PEM file with the certificate of /metrics and its chain\nserves metrics with TLS; read anew when it changes")
	f.StringVar(&o.MetricsTLS.KeyFile, "metrics-tls-key-file", "", "PEM file with the key of --metrics-tls-cert-file")
	f.BoolVar(&o.InitOnly, "init-only", false, "do what needs privileges, and exit\nmounts, programs, kernel conntrack; an agent with fewer privileges takes over")
	f.BoolVar(&o.cleanup, "cleanup", false, "do what headgate cleanup does, and exit")
	f.StringVar(&o.logLevel, "log-level", "info", "least severe level: debug, info, warn, error")
	f.StringVar(&o.logFormat, "log-format", "console", "format of log lines: console or json")
}
