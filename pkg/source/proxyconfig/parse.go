package proxyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/headgate/headgate/pkg/lb"
)

// Input is where a configuration comes from. The zero value is kube-proxy's
// without file and flags.
type Input struct {
	File  string // names Data in problems
	Data  []byte // a KubeProxyConfiguration in YAML or JSON; nil for none
	Flags *Flags // those of the command line, nil for none
	// Standalone is for a node without a cluster: nothing listens, and the
	// kernel's connection tracking is left alone, unless the input says so.
	Standalone bool
}

// Load reads a file. See Parse.
func Load(path string) (Config, []lb.Problem, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, nil, err
	}
	return Parse(Input{File: path, Data: data})
}

// Parse reads a configuration. Beside it, it returns a warning for every setting
// that has no effect, sorted by name, and an error if there is something that
// Headgate cannot take over, of which each part is an lb.Problem.
func Parse(in Input) (Config, []lb.Problem, error) {
	r := &reader{used: map[string]bool{}, standalone: in.Standalone}
	var warnings []lb.Problem
	if in.Data != nil {
		var err error
		if r.doc, warnings, err = decode(in.Data); err != nil {
			return Config{}, nil, fmt.Errorf("%s: %w", in.File, err)
		}
	}
	if in.Flags != nil {
		r.flags = in.Flags.values
	}
	cfg := r.config()
	if len(r.wrong) > 0 {
		var errs []error
		for _, p := range inFile(in.File, r.wrong) {
			errs = append(errs, p)
		}
		return Config{}, nil, errors.Join(errs...)
	}
	return cfg, inFile(in.File, append(warnings, r.warnings()...)), nil
}

// inFile names the file in problems, but not in those of flags.
func inFile(file string, problems []lb.Problem) []lb.Problem {
	for i := range problems {
		if !strings.HasPrefix(problems[i].Field, "--") {
			problems[i].File = file
		}
	}
	return problems
}

// The modes, which are also the names of their sections.
const (
	iptables = "iptables"
	ipvs     = "ipvs"
	nftables = "nftables"
)

// config reads every setting that has an effect.
func (r *reader) config() Config {
	mode := r.mode()
	c := Config{
		Common: Common{
			BindAddress:  r.addr("bindAddress", netip.IPv4Unspecified()),
			BindHardFail: r.flag("bindAddressHardFail", false),
			Profiling:    r.flag("enableProfiling", false),
			NodePorts:    r.nodePorts(mode),
			OOMScoreAdj:  r.wholeIfSet("oomScoreAdj", bounds{-1000, 1000}),
			Conntrack:    r.conntrack(),
			SyncPeriod:   r.period(mode+".syncPeriod", 30*time.Second),
		},
		Client: Client{
			Kubeconfig: r.text("clientConnection.kubeconfig", ""),
			Server:     r.text("--master", ""),
			QPS:        r.decimal("clientConnection.qps", 5),
			Burst:      cmp.Or(r.whole("clientConnection.burst", bounds{0, maxInt32}, 0), 10),
		},
		NodeName:  r.nodeName(),
		LogLevel:  r.logLevel(),
		LogFormat: r.logFormat(),
	}
	healthz, metrics := "0.0.0.0", "127.0.0.1"
	if !c.BindAddress.Is4() {
		healthz, metrics = "::", "::1"
	}
	c.HealthzAddress = r.listener(listener{"healthzBindAddress", "--healthz-port", healthz, 10256})
	c.MetricsAddress = r.listener(listener{"metricsBindAddress", "--metrics-port", metrics, 10249})
	c.NodePortLoopback = r.loopback(mode, c.NodePorts)
	if mode == ipvs {
		c.Algorithm = r.scheduler()
	}
	return c
}

// nodeName returns the name of the node as kube-proxy would take it, "" where none is written.
func (r *reader) nodeName() string {
	const field = "hostnameOverride"
	name := strings.ToLower(strings.TrimSpace(r.text(field, "")))
	var wrong lb.Problem
	if name != "" && errors.As(CheckNodeName(r.name(field), name), &wrong) {
		r.wrong = append(r.wrong, wrong)
	}
	return name
}

// CheckNodeName returns a Problem of the name of a Node that a setting has, nil if
// Kubernetes would take it.
func CheckNodeName(setting, name string) error {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return nil
	}
	return lb.Problem{Field: setting, Value: name, Reason: "is not the name of a Node",
		Remedy: "write up to 253 lower-case letters, digits, '-' and '.', such as node-a"}
}

// mode returns the mode whose defaults and section count.
func (r *reader) mode() string {
	const field = "mode"
	switch mode := r.text(field, iptables); mode {
	case iptables, ipvs, nftables:
		return mode
	default:
		r.warn(field, mode, "is no mode of kube-proxy on Linux; that of iptables counts")
		return iptables
	}
}

// scheduler returns the algorithm that does what a scheduler of IPVS does.
func (r *reader) scheduler() string {
	const field = "ipvs.scheduler"
	name := r.text(field, "rr")
	switch name {
	case "mh":
		return lb.Maglev.String()
	case "twos":
		return lb.P2C.String()
	}
	a, ok := lb.ParseAlgorithm(name)
	if !ok || a < lb.RR || a > lb.NQ || a == lb.Maglev || a == lb.Stable {
		r.warn(field, name, "is no scheduler that Headgate has; --algorithm counts")
		return ""
	}
	return name
}

// conntrack reads settings of which 0 leaves what the kernel has.
func (r *reader) conntrack() Conntrack {
	entries := bounds{0, maxInt32}
	usual := Conntrack{MaxPerCore: 32 << 10, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour}
	if r.standalone {
		usual = Conntrack{}
	}
	return Conntrack{
		MaxPerCore:            r.whole("conntrack.maxPerCore", entries, usual.MaxPerCore),
		Min:                   r.whole("conntrack.min", entries, 128<<10),
		TCPEstablishedTimeout: r.duration("conntrack.tcpEstablishedTimeout", usual.TCPEstablishedTimeout),
		TCPCloseWaitTimeout:   r.duration("conntrack.tcpCloseWaitTimeout", usual.TCPCloseWaitTimeout),
		TCPBeLiberal:          r.flag("conntrack.tcpBeLiberal", false),
		UDPTimeout:            r.duration("conntrack.udpTimeout", 0),
		UDPStreamTimeout:      r.duration("conntrack.udpStreamTimeout", 0),
	}
}

// logLevel returns debug from the verbosity on at which kube-proxy's log tells
// what it is for.
func (r *reader) logLevel() string {
	const debugFrom = 4
	switch verbosity := r.wholeIfSet("logging.verbosity", bounds{0, maxInt32}); {
	case verbosity == nil || *verbosity == 0:
		return ""
	case *verbosity >= debugFrom:
		return "debug"
	default:
		return "info"
	}
}

func (r *reader) logFormat() string {
	const field = "logging.format"
	switch format := r.text(field, ""); format {
	case "", "json":
		return format
	case "text":
		return "console"
	default:
		r.warn(field, format, "is no format of kube-proxy's log; write text or json")
		return ""
	}
}

// nodePorts resolves the words that stand for ranges. In mode nftables the
// default is the primary addresses.
func (r *reader) nodePorts(mode string) NodePorts {
	const field = "nodePortAddresses"
	words := r.texts(field)
	if len(words) == 0 {
		return NodePorts{Primary: mode == nftables}
	}
	var n NodePorts
	for _, word := range words {
		switch word {
		case "primary":
			n.Primary = true
		case "localhost":
			n.CIDRs = append(n.CIDRs, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		case "all":
			n.CIDRs = append(n.CIDRs, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
		default:
			n.CIDRs = append(n.CIDRs, r.cidr(field, word)...)
		}
	}
	r.warnOfOpenFamily(field, n)
	return n
}

// warnOfOpenFamily warns of a list that restricts one family only.
func (r *reader) warnOfOpenFamily(field string, n NodePorts) {
	if n.Primary || len(n.CIDRs) == 0 {
		return
	}
	has := map[lb.Family]bool{}
	for _, cidr := range n.CIDRs {
		has[lb.FamilyOf(cidr.Addr())] = true
	}
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		if !has[f] {
			r.warn(field, "", fmt.Sprintf("has no %s range, so NodePorts answer on every %s address of the node", f, f))
		}
	}
}

// loopback says whether NodePorts answer on loopback addresses: in mode iptables
// unless it was turned off or the ranges leave 127.0.0.1 out, in others only if
// they name it.
func (r *reader) loopback(mode string, n NodePorts) bool {
	if mode == iptables {
		// Whatever the node's primary address is, it is not 127.0.0.1.
		other := []netip.Addr{netip.IPv4Unspecified()}
		return r.flag("iptables.localhostNodePorts", true) && n.Allow(netip.AddrFrom4([4]byte{127, 0, 0, 1}), other)
	}
	return slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
}
