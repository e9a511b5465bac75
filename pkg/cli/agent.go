package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// defaultLimits keep a mistake in the input from eating the machine's memory.
var defaultLimits = plan.Sizes{Frontends: 1 << 20, Slots: 1 << 25, Backends: 1 << 22, Services: 1 << 20}

// Where kube-proxy answers unless told otherwise.
const (
	defaultHealthz = "0.0.0.0:10256"
	defaultMetrics = "127.0.0.1:10249"
)

// agentOptions is what flags set, beside the configuration itself.
type agentOptions struct {
	agent.Config
	configFile    string
	cleanup       bool
	passiveHealth bool
	hostname      string
	nodePorts     []string
	serviceCIDRs  []string
	externalIPs   string
	logLevel      string
	logFormat     string
	notApplicable []string // of a KubeProxyConfiguration
	fromKubeProxy bool     // such a configuration was read
	changed       func(flag string) bool
}

func newAgent(e *env) *cobra.Command {
	o := &agentOptions{Config: agent.Config{Limits: defaultLimits}}
	cmd := &cobra.Command{
		Use:   "agent [--manifests DIR] --node-name NAME",
		Short: "Balance the Services of a cluster, or of a directory of Kubernetes YAML",
		Long: `Watches the API server of a cluster, or with --manifests a directory of Kubernetes YAML
or JSON (Service, EndpointSlice, Node), and keeps the kernel in line with it. What it has
programmed goes on working when it ends; headgate cleanup removes it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, e) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *agentOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "config", "", "YAML file that sets any of these flags by name, or a KubeProxyConfiguration; the command line has precedence")
	f.StringVar(&o.Manifests, "manifests", "", "directory of Kubernetes YAML or JSON to watch in place of an API server")
	f.StringVar(&o.Kube.Kubeconfig, "kubeconfig", "", "how to reach the API server (default: the ServiceAccount of the pod)")
	f.StringSliceVar(&o.Kube.Servers, "api-servers", nil, "URLs of API servers, tried in turn, in place of the one in the kubeconfig or of its Service")
	f.StringVar(&o.Kube.TLSServerName, "tls-server-name", "", "name that the certificates of the API servers have (default: of the kubeconfig)")
	f.Float32Var(&o.Kube.QPS, "kube-api-qps", 5, "requests a second to the API server")
	f.IntVar(&o.Kube.Burst, "kube-api-burst", 10, "requests to the API server at once")
	f.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this Node (default: $NODE_NAME)")
	f.StringVar(&o.hostname, "hostname-override", "", "the same, as kube-proxy calls it")
	f.StringVar(&o.Cgroup, "cgroup", "", "cgroup2 directory whose processes are balanced (default: the root, wherever it is mounted)")
	f.StringSliceVar(&o.Devices, "devices", nil, "names or patterns of the devices on which others reach the node (default: those with a default route, and tunnels)")
	f.StringVar((*string)(&o.PodDevices), "pod-devices", string(agent.PodDevicesNone), "pods whose packets are balanced at their own devices: none, marked (those with the annotation headgate.dev/socket-balancing: off, or a runtime class named by --pod-runtime-classes), all")
	f.StringSliceVar(&o.Convert.RuntimeClasses, "pod-runtime-classes", nil, "runtime classes of pods whose sockets are not the node's, such as kata")
	f.BoolVar(&o.Redirect, "redirect", false, "send packets to backends on other nodes at once, past the stack: past its filters, too")
	f.BoolVar(&o.Filters, "filters", false, "attach to devices by filters (clsact), as on kernels without tcx")
	f.StringSliceVar(&o.nodePorts, "nodeport-addresses", nil, "prefixes of the addresses that NodePorts answer on, or primary (default: every address of the node)")
	f.BoolVar(&o.NodePortLoopback, "nodeport-loopback", true, "let NodePorts answer on 127.0.0.1 and ::1 to processes in the node's network namespace")
	f.StringSliceVar(&o.serviceCIDRs, "service-cidrs", nil, "prefixes that belong to Services: addresses that none has are refused (default: what the API server says)")
	f.StringVar(&o.externalIPs, "external-ips", "allow", "external IPs of Services: allow, deny, or the prefixes that they may be of, separated by commas (CVE-2020-8554)")
	f.StringVar(&o.HealthzAddress, "healthz-bind-address", "", "host:port of /healthz and /livez (default: "+defaultHealthz+", none with --manifests)")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "host:port of /metrics, /proxyMode and /configz (default: "+defaultMetrics+", none with --manifests)")
	f.BoolVar(&o.BindHardFail, "bind-address-hard-fail", false, "end if one of these cannot be had, instead of trying again")
	f.BoolVar(&o.Profiling, "profiling", false, "answer on /debug/pprof/ of the metrics address")
	f.IntVar(&o.KernelConntrack.MaxPerCore, "conntrack-max-per-core", 0, "entries of the kernel's connection tracking for each core (default: 32768, as it is with --manifests)")
	f.IntVar(&o.KernelConntrack.Min, "conntrack-min", 131072, "the least of them, if --conntrack-max-per-core is not 0")
	f.DurationVar(&o.KernelConntrack.TCPEstablishedTimeout, "conntrack-tcp-timeout-established", 0, "idle time of established connections there (default: 24h, as it is with --manifests)")
	f.DurationVar(&o.KernelConntrack.TCPCloseWaitTimeout, "conntrack-tcp-timeout-close-wait", 0, "the same of half-closed ones (default: 1h, as it is with --manifests)")
	f.Uint32Var(&o.Promises, "promises", datapath.DefaultPromises, "sockets whose promise is kept in the fast map, 64 bytes each; a power of two")
	f.Uint32Var(&o.Affinities, "affinities", datapath.DefaultAffinities, "clients of Services with session affinity that are remembered")
	f.Uint32Var(&o.Flows, "flows", 0, "entries for flows of packets, two to four for each flow (default: one for each 64 KiB of memory)")
	f.StringVar(&o.Algorithm, "algorithm", "random", "how Services are balanced that have no annotation headgate.dev/algorithm: "+strings.Join(lb.Algorithms(), ", "))
	f.BoolVar(&o.passiveHealth, "passive-health", true, "avoid backends that do not take connections, for Services that have no annotation headgate.dev/passive-health")
	f.Uint32Var(&o.SuspectAfter, "suspect-after", 3, "connections in a row that a backend does not take before it is avoided (0: none ever is)")
	f.Uint32Var(&o.MaxEjected, "max-ejected-percent", 50, "of the backends of a Service no more are avoided, in per cent")
	f.BoolVar(&o.MetricsPerBackend, "metrics-per-backend", false, "have /metrics tell of every backend (default: of up to 1000 that fail, or that algorithms by load compare)")
	f.StringVar(&o.HashKeyFile, "hash-key-file", "", "file with a secret that keys the hashes of flows, the same on all nodes (default: what follows from the certificate authority of the cluster)")
	f.Uint32Var(&o.Limits.Frontends, "max-frontends", o.Limits.Frontends, "entries that the frontends map grows to at most (0: no limit)")
	f.Uint32Var(&o.Limits.Slots, "max-slots", o.Limits.Slots, "slots that the slots map grows to at most (0: no limit)")
	f.Uint32Var(&o.Limits.Backends, "max-backends", o.Limits.Backends, "entries that the backends map grows to at most (0: no limit)")
	f.Uint32Var(&o.Limits.Services, "max-services", o.Limits.Services, "entries that the services map grows to at most (0: no limit)")
	f.BoolVar(&o.InitOnly, "init-only", false, "do what needs privileges (mounts, programs, the kernel's connection tracking), and end: an agent with fewer takes over")
	f.BoolVar(&o.cleanup, "cleanup", false, "do what headgate cleanup does, and end")
	f.StringVar(&o.logLevel, "log-level", "info", "least severe level that is logged: debug, info, warn, error")
	f.StringVar(&o.logFormat, "log-format", "console", "format of log lines: console or json")
}

func (o *agentOptions) run(cmd *cobra.Command, e *env) error {
	if err := o.readConfig(cmd.Flags()); err != nil {
		return err
	}
	if o.cleanup {
		return datapath.Cleanup(e.bpfRoot)
	}
	o.IgnoreHealth = !o.passiveHealth
	o.BPFRoot, o.StateDir, o.Version, o.changed = e.bpfRoot, e.state, e.version, cmd.Flags().Changed
	if err := o.complete(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	log, err := newLogger(o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	for _, w := range o.notApplicable {
		log.Warn("configuration", zap.String("problem", w))
	}
	return agent.Run(cmd.Context(), o.Config, log)
}

// complete makes the configuration of what the flags say.
func (o *agentOptions) complete() error {
	if o.hostname != "" {
		o.NodeName = o.hostname
	}
	if o.Manifests == "" {
		if o.Kube.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" && len(o.Kube.Servers) == 0 {
			return errors.New("no source of Services: name a directory of YAML with --manifests, or a cluster with --kubeconfig")
		}
		o.HealthzAddress = orDefault(o.HealthzAddress, defaultHealthz)
		o.MetricsAddress = orDefault(o.MetricsAddress, defaultMetrics)
		o.completeConntrack()
	}
	if err := o.completeNodePorts(); err != nil {
		return err
	}
	prefixes, err := parsePrefixes("--service-cidrs", o.serviceCIDRs)
	if err != nil {
		return err
	}
	o.ServiceCIDRs = prefixes
	switch o.externalIPs {
	case "allow":
	case "deny":
		o.Convert.ExternalIPs.Off = true
	default:
		o.Convert.ExternalIPs.Allowed, err = parsePrefixes("--external-ips", strings.Split(o.externalIPs, ","))
	}
	return err
}

// completeConntrack fills in what kube-proxy sets unless told otherwise.
func (o *agentOptions) completeConntrack() {
	if o.fromKubeProxy {
		return
	}
	c := &o.KernelConntrack
	if !o.changed("conntrack-max-per-core") {
		c.MaxPerCore = 32768
	}
	if !o.changed("conntrack-tcp-timeout-established") {
		c.TCPEstablishedTimeout = 24 * time.Hour
	}
	if !o.changed("conntrack-tcp-timeout-close-wait") {
		c.TCPCloseWaitTimeout = time.Hour
	}
}

func (o *agentOptions) completeNodePorts() error {
	if len(o.nodePorts) == 0 {
		return nil
	}
	if len(o.nodePorts) == 1 && o.nodePorts[0] == "primary" {
		o.NodePorts = proxyconfig.NodePorts{Primary: true}
		return nil
	}
	prefixes, err := parsePrefixes("--nodeport-addresses", o.nodePorts)
	o.NodePorts = proxyconfig.NodePorts{CIDRs: prefixes}
	return err
}

// parsePrefixes reads prefixes in CIDR notation; none is nil.
func parsePrefixes(flag string, words []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, w := range words {
		p, err := netip.ParsePrefix(strings.TrimSpace(w))
		if err != nil {
			return nil, fmt.Errorf("%s %q: not a prefix; write one like 192.0.2.0/24 or 2001:db8::/32", flag, w)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// newLogger returns a logger to stderr.
func newLogger(level, format string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	cfg := zap.NewProductionConfig()
	cfg.Sampling = nil
	cfg.DisableStacktrace, cfg.DisableCaller = true, true
	cfg.Level = zap.NewAtomicLevelAt(l)
	cfg.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	switch format {
	case "json":
	case "console":
		cfg.Encoding = format
	default:
		return nil, fmt.Errorf("--log-format %q: write console or json", format)
	}
	return cfg.Build()
}
