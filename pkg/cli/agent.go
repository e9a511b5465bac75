package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// defaultLimits keep a mistake in the input from eating the machine's memory. The limit of memory in deploy/ holds
// with these, as docs/install.md reckons.
var defaultLimits = plan.Sizes{Frontends: 1 << 18, Slots: 1 << 25, Backends: 1 << 19, Services: 1 << 17}

// minFlows is the least --flows: with fewer, few clients push out each other.
const minFlows = 1024

// agentOptions is what flags set, beside the configuration itself.
type agentOptions struct {
	agent.Config
	configFile    string
	proxyFile     []byte // a KubeProxyConfiguration, nil where none was read
	proxyFlags    proxyconfig.Flags
	withoutEffect []string // settings of kube-proxy, and why
	cleanup       bool
	passiveHealth bool
	serviceCIDRs  []string
	xdp           []string
	externalIPs   string
	probes        string
	logLevel      string
	logFormat     string
}

func newAgent(e *env) *cobra.Command {
	o := &agentOptions{}
	cmd := &cobra.Command{
		Use:     "agent [--manifests DIR] [flags]",
		Version: e.version,
		Short:   "Balance the Services of a cluster, or of a directory of Kubernetes YAML",
		Long: `Watches the API server of a cluster, or with --manifests a directory of Kubernetes YAML
or JSON (Service, EndpointSlice, Node), and keeps the kernel in line with it. What it has
programmed goes on working when it ends; headgate cleanup removes it.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, e) },
	}
	o.addFlags(cmd)
	return cmd
}

func (o *agentOptions) run(cmd *cobra.Command, e *env) error {
	if err := o.resolve(cmd.Flags()); err != nil {
		return err
	}
	if o.cleanup {
		return e.cleanUp(cmd.OutOrStdout())
	}
	o.Datapath.Root, o.StateDir, o.Version = e.bpfRoot, e.state, e.version
	o.Settings = o.settings(cmd.Flags())
	var err error
	if o.Journal, err = agent.NewJournal(o.logLevel); err != nil {
		return err
	}
	log, err := newLogger(cmd.ErrOrStderr(), o.Journal, o.logFormat)
	if err != nil {
		return err
	}
	for _, line := range o.withoutMeaning(cmd.Flags().Changed) {
		log.Warn(line)
	}
	if len(o.withoutEffect) > 0 {
		log.Warn("settings of kube-proxy without effect", zap.Strings("settings", o.withoutEffect))
	}
	return agent.Run(cmd.Context(), o.Config, log)
}

// resolve makes the configuration of an agent of what files and flags say.
func (o *agentOptions) resolve(flags *pflag.FlagSet) error {
	if err := o.readConfig(flags); err != nil {
		return err
	}
	if o.cleanup {
		return nil // whatever else is said
	}
	if err := o.settle(flags); err != nil {
		return err
	}
	if o.Manifests == "" && !o.namesCluster() {
		return errors.New("no source of Services: name a directory of YAML with --manifests, or a cluster with --kubeconfig")
	}
	return nil
}

// namesCluster says whether it is known where to look for an API server.
func (o *agentOptions) namesCluster() bool {
	return o.Kube.Kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" || len(o.Kube.Servers) > 0
}

// settle makes the configuration of what the flags have come to.
func (o *agentOptions) settle(flags *pflag.FlagSet) error {
	if err := o.takeOver(flags.Changed); err != nil {
		return err
	}
	if err := checkDevices("--devices", o.Devices); err != nil {
		return err
	}
	if o.XDP = o.xdp; slices.Equal(o.xdp, []string{xdpOff}) {
		o.XDP = nil
	}
	if err := checkDevices("--xdp", o.XDP); err != nil {
		return err
	}
	if files := o.MetricsTLS; (files.CertFile == "") != (files.KeyFile == "") {
		return errors.New("--metrics-tls-cert-file and --metrics-tls-key-file: one is set without the other; set both, or neither to serve metrics without TLS")
	}
	if o.Forwarding.Carries() && o.HashKeyFile == "" {
		return fmt.Errorf("--forwarding %s: nodes carry to each other only with the same key of hashes; name the file of a key that all nodes have with --hash-key-file. "+
			"The chart mounts a Secret with one; docs/install.md, The key of hashes, says how to make one", o.Forwarding)
	}
	o.IgnoreHealth = !o.passiveHealth
	o.Convert.DSR, o.Convert.Forwarding = o.Forwarding.Carries(), o.Forwarding.Default()
	var err error
	if o.ServiceCIDRs, err = parsePrefixes("--service-cidrs", o.serviceCIDRs); err != nil {
		return err
	}
	if external := &o.Convert.ExternalIPs; o.externalIPs == offNode {
		external.OffNode = true
	} else if external.Off, external.Allowed, err = parsePolicy("--external-ips", offNode+", allow or deny", o.externalIPs); err != nil {
		return err
	}
	off, allowed, err := parsePolicy("--probes", "allow or deny", o.probes)
	o.Convert.Probes, o.ProbePrefixes = !off, allowed
	return err
}

// offNode is the value of --external-ips that refuses addresses of the node.
const offNode = "off-node"

// xdpOff is the value of --xdp that means no device.
const xdpOff = "off"

// checkDevices refuses what no device can be named.
func checkDevices(flag string, patterns []string) error {
	for _, p := range patterns {
		if !netdev.IsPattern(p) {
			return fmt.Errorf("%s %s: neither the name of a device nor a pattern; write one such as eth0 or eth*", flag, lb.Quote(p))
		}
	}
	return nil
}

// parsePolicy reads allow, deny, or the prefixes that are allowed. Words are all that the flag takes
// besides prefixes, for the error.
func parsePolicy(flag, words, value string) (off bool, allowed []netip.Prefix, err error) {
	switch value {
	case "allow":
		return false, nil, nil
	case "deny":
		return true, nil, nil
	}
	if allowed, err = parsePrefixes(flag, strings.Split(value, ",")); err != nil {
		err = fmt.Errorf("%w, or %s alone", err, words)
	}
	return false, allowed, err
}

// parsePrefixes reads prefixes in CIDR notation; none is nil.
func parsePrefixes(flag string, words []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, w := range words {
		p, err := netip.ParsePrefix(strings.TrimSpace(w))
		if err != nil {
			return nil, fmt.Errorf("%s %s: not a prefix; write one like 192.0.2.0/24 or 2001:db8::/32", flag, lb.Quote(w))
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// newLogger returns a logger. Texts in what it writes may be anybody's, as those of errors are.
func newLogger(to io.Writer, journal *agent.Journal, format string) (*zap.Logger, error) {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder := zapcore.NewConsoleEncoder(cfg)
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(cfg)
	case "console":
	default:
		return nil, fmt.Errorf("--log-format %s: write console or json", lb.Quote(format))
	}
	both := command.Printable(io.MultiWriter(journal, to))
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(both)), journal.Level)), nil
}
