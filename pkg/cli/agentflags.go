package cli

import (
	"fmt"
	"math"
	"os"
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

// addFlags gives the command its flags, and a help that shows them in groups.
func (o *agentOptions) addFlags(cmd *cobra.Command) {
	groups := []flagGroup{
		{"Where Services come from", o.addSource},
		{"What is balanced", o.addTraffic},
		{"How backends are chosen", o.addBalancing},
		{"What Services may ask for", o.addPolicy},
		{"Sizes and limits", o.addLimits},
		{"Operation", o.addOperation},
		{"As kube-proxy has them (docs/kube-proxy.md lists all of them; those without effect are accepted)", o.addProxy},
	}
	sets := make([]*pflag.FlagSet, len(groups))
	for i, g := range groups {
		sets[i] = pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		g.add(sets[i])
		cmd.Flags().AddFlagSet(sets[i])
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		for i, g := range groups {
			fmt.Fprintf(out, "\n%s:\n%s", g.title, sets[i].FlagUsages())
		}
		fmt.Fprintf(out, "\nOf every command:\n%s", cmd.InheritedFlags().FlagUsages())
		return nil
	})
}

func (o *agentOptions) addSource(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "config", "", "YAML file that sets any of these flags by name, or a KubeProxyConfiguration; the command line has precedence")
	f.StringVar(&o.Manifests, "manifests", "", "directory of Kubernetes YAML or JSON to watch in place of an API server")
	f.StringSliceVar(&o.Kube.Servers, "api-servers", nil, "URLs of API servers, tried in turn, in place of the one in the kubeconfig or of its Service")
	f.StringVar(&o.Kube.TLSServerName, "tls-server-name", "", "name in the certificates of the API servers (default: that of the kubeconfig)")
	f.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node (default: $NODE_NAME, or the host name in lower case)")
}

func (o *agentOptions) addTraffic(f *pflag.FlagSet) {
	f.StringVar(&o.Datapath.Cgroup, "cgroup", "", "cgroup2 directory whose processes are balanced (default: the root cgroup, so all processes)")
	f.StringSliceVar(&o.Devices, "devices", nil, "names or patterns of the devices on which others reach the node (default: those that lead to other hosts, see docs/paths.md)")
	f.Var(oneOf(&o.PodDevices, agent.PodDevicesNone, agent.PodDevicesNone, agent.PodDevicesMarked, agent.PodDevicesAll), "pod-devices", "pods whose packets are balanced at their own devices: none, marked (those with the annotation headgate.dev/socket-balancing: off, or a runtime class named by --pod-runtime-classes), all")
	f.StringSliceVar(&o.Convert.RuntimeClasses, "pod-runtime-classes", nil, "runtime classes of pods whose sockets are not the node's, such as kata")
	f.Var(oneOf(&o.Forwarding, agent.ForwardingSNAT, agent.ForwardingSNAT, agent.ForwardingMarked, agent.ForwardingDSR), "forwarding", "how packets of clients elsewhere get to backends on other nodes: snat (from an address of this node), marked (of Services with the annotation headgate.dev/forwarding: dsr unchanged, carried to the node of the backend, which answers itself), dsr (of all Services but those that say snat)")
	f.Var(oneOf(&o.Encapsulation, agent.EncapsulationUDP, agent.EncapsulationUDP, agent.EncapsulationIPIP), "dsr-encapsulation", "outer header of packets to backends outside, which --manifests alone has: udp (port 6635, without a proof), ipip; nodes carry to each other over UDP with a proof")
	f.Var(oneOf(&o.OuterFamily, agent.OuterIPv4, agent.OuterIPv4, agent.OuterIPv6), "dsr-family", "family of the outer header where two nodes have InternalIPs of both: ipv4, ipv6 (where nodes do not reach each other by IPv4); both are taken")
	f.BoolVar(&o.Datapath.Redirect, "redirect", false, "send packets to backends on other nodes directly, bypassing the network stack and its filters")
	f.StringSliceVar(&o.xdp, "xdp", []string{xdpOff}, "devices whose driver sends on what follows in flows to other nodes, by native XDP: off, auto, or names and patterns; implies --redirect")
	f.BoolVar(&o.Datapath.Filters, "filters", false, "attach to devices by filters (clsact), as on kernels without tcx")
	f.BoolVar(&o.Datapath.Traffic, "traffic", true, "count bytes, packets, failures and connect times of Services and backends")
	f.BoolVar(&o.NodePortLoopback, "nodeport-loopback", true, "let NodePorts answer on 127.0.0.1 and ::1 to processes in the node's network namespace, unless --nodeport-addresses leaves loopback out")
	f.StringSliceVar(&o.serviceCIDRs, "service-cidrs", nil, "prefixes that belong to Services: connections to unassigned addresses in them are refused (default: the API server's ServiceCIDRs)")
}

func (o *agentOptions) addBalancing(f *pflag.FlagSet) {
	f.StringVar(&o.DSRKeyFile, "dsr-key-file", "", "file with one or two keys, a line each: the node proves what it carries by the first key, and accepts both (default: the secret of --hash-key-file)")
	f.Var(oneOf(&o.Algorithm, lb.Random.String(), lb.Algorithms()...), "algorithm", "algorithm of Services without the annotation headgate.dev/algorithm: "+strings.Join(lb.Algorithms(), ", "))
	f.BoolVar(&o.passiveHealth, "passive-health", true, "avoid backends that fail, for Services without the annotation headgate.dev/passive-health")
	f.Var(within(&o.Datapath.EjectAfter, 3, 0, math.MaxUint8), "eject-after", "consecutive failed connections that eject a backend (0: never)")
	f.Var(within(&o.Datapath.MaxEjected, 50, 0, 100), "max-ejected-percent", "largest share of a Service's backends that may be avoided, in percent")
	f.StringVar(&o.HashKeyFile, "hash-key-file", "", "file with a secret that keys the hashes of flows, the same on all nodes, as --forwarding marked and dsr need it (default: a secret of this node, made once and kept in --state-dir)")
}

func (o *agentOptions) addPolicy(f *pflag.FlagSet) {
	f.StringVar(&o.externalIPs, "external-ips", offNode, "external IPs of Services: off-node (no addresses of this node), allow (these, too), deny, or the prefixes to allow, separated by commas; docs/install.md says what is refused besides (CVE-2020-8554)")
	f.StringVar(&o.probes, "probes", "deny", "probes of backends that Services ask for with headgate.dev/probe: allow, deny, or the prefixes to allow, separated by commas")
}

func (o *agentOptions) addLimits(f *pflag.FlagSet) {
	f.Var(powerOfTwo(&o.Datapath.SocketEntries, datapath.DefaultSocketEntries), "socket-entries", "socket NAT entries in the fast map, 64 bytes each, others are in socket storage; a power of two")
	f.Var(within(&o.Datapath.Affinities, datapath.DefaultAffinities, 1, math.MaxUint32), "affinities", "clients of Services with session affinity that are remembered")
	f.Var(orZero(&o.Datapath.Flows, "one per 64 KiB of memory", minFlows), "flows", "entries for flows of packets, two to four per flow, at least 1,024 (default 0: one per 64 KiB of memory)")
	f.Var(portsFrom(&o.Datapath.SNATPorts, datapath.DefaultSNATPorts), "snat-ports", "source ports of flows to backends on other nodes, the first and the last; those that the node's own sockets choose are taken last")
	f.Var(within(&o.Limits.Frontends, defaultLimits.Frontends, 0, math.MaxUint32), "max-frontends", "maximum entries of the frontends map that Services use together (0: no limit)")
	f.Var(within(&o.Limits.Slots, defaultLimits.Slots, 0, math.MaxUint32), "max-slots", "maximum slots of the slots map that Services use together (0: no limit)")
	f.Var(within(&o.Limits.Backends, defaultLimits.Backends, 0, math.MaxUint32), "max-backends", "maximum entries of the backends map that Services use together (0: no limit)")
	f.Var(within(&o.Limits.Services, defaultLimits.Services, 0, math.MaxUint32), "max-services", "maximum entries of the services map that Services use together (0: no limit)")
}

func (o *agentOptions) addOperation(f *pflag.FlagSet) {
	f.BoolVar(&o.MetricsPerBackend, "metrics-per-backend", false, "export metrics for every backend, and connections of every Service (default: at most 1,000 of each: backends that fail, and those of algorithms that compare load)")
	f.StringVar(&o.MetricsTLS.CertFile, "metrics-tls-cert-file", "", "PEM file with the certificate, and its chain, by which metrics are served with TLS; read anew when it changes")
	f.StringVar(&o.MetricsTLS.KeyFile, "metrics-tls-key-file", "", "PEM file with the key of --metrics-tls-cert-file")
	f.BoolVar(&o.InitOnly, "init-only", false, "do what needs privileges (mounts, programs, kernel conntrack), and exit: an agent with fewer privileges takes over")
	f.BoolVar(&o.cleanup, "cleanup", false, "do what headgate cleanup does, and exit")
	f.StringVar(&o.logLevel, "log-level", "info", "least severe level that is logged: debug, info, warn, error")
	f.StringVar(&o.logFormat, "log-format", "console", "format of log lines: console or json")
}

// addProxy adds flags of kube-proxy, but for those that Headgate has anyway.
func (o *agentOptions) addProxy(f *pflag.FlagSet) { o.proxyFlags.AddTo(f) }
