package proxyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	netutils "k8s.io/utils/net"

	"github.com/headgate/headgate/pkg/lb"
)

// Load reads a file. See Parse.
func Load(path string) (Config, []lb.Problem, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, nil, err
	}
	return Parse(path, data)
}

// Parse reads a KubeProxyConfiguration in YAML or JSON. File only names it in
// what is returned beside the configuration: a warning for every field that is
// set and does not apply, sorted by field, and an error if there is something
// that kube-proxy would not take either, of which each part is an lb.Problem.
func Parse(file string, data []byte) (Config, []lb.Problem, error) {
	doc, warnings, err := decode(data)
	if err != nil {
		return Config{}, nil, fmt.Errorf("%s: %w", file, err)
	}
	r := &reader{doc: doc, used: map[string]bool{}}
	cfg := r.config()
	if len(r.wrong) > 0 {
		var errs []error
		for _, p := range r.wrong {
			p.File = file
			errs = append(errs, p)
		}
		return Config{}, nil, errors.Join(errs...)
	}
	warnings = append(warnings, r.warnings()...)
	for i := range warnings {
		warnings[i].File = file
	}
	return cfg, warnings, nil
}

// The sections of modes.
const (
	iptables = "iptables"
	ipvs     = "ipvs"
	nftables = "nftables"
)

// config reads every field that applies.
func (r *reader) config() Config {
	mode := r.text("mode", iptables)
	c := Config{
		Client: Client{
			Kubeconfig:  r.text("clientConnection.kubeconfig", ""),
			ContentType: r.text("clientConnection.contentType", "application/vnd.kubernetes.protobuf"),
			QPS:         r.decimal("clientConnection.qps", 5),
			Burst:       cmp.Or(r.whole("clientConnection.burst", bounds{0, maxInt32}, 0), 10),
		},
		NodeName:         strings.ToLower(strings.TrimSpace(r.text("hostnameOverride", ""))),
		PrimaryIP:        r.addr("bindAddress", netip.IPv4Unspecified()),
		BindHardFail:     r.flag("bindAddressHardFail", false),
		Profiling:        r.flag("enableProfiling", false),
		NodePorts:        r.nodePorts(mode),
		Local:            r.local(),
		MasqueradeAll:    r.flag(sectionOf(mode, nftables, iptables)+".masqueradeAll", false),
		OOMScoreAdj:      r.whole("oomScoreAdj", bounds{-1000, 1000}, -999),
		Conntrack:        r.conntrack(),
		SyncPeriod:       r.period(sectionOf(mode, ipvs, sectionOf(mode, nftables, iptables))+".syncPeriod", 30*time.Second),
		ConfigSyncPeriod: r.period("configSyncPeriod", 15*time.Minute),
		FeatureGates:     r.gates(),
	}
	healthz, metrics := "0.0.0.0", "127.0.0.1"
	if !c.PrimaryIP.Is4() {
		healthz, metrics = "::", "::1"
	}
	c.HealthzAddress = r.hostPort("healthzBindAddress", healthz, 10256)
	c.MetricsAddress = r.hostPort("metricsBindAddress", metrics, 10249)
	c.NodePortLoopback = r.loopback(mode, c.NodePorts)
	return c
}

// sectionOf returns the section of a mode if that is the mode, else the other.
func sectionOf(mode, section, other string) string {
	if mode == section {
		return section
	}
	return other
}

func (r *reader) conntrack() Conntrack {
	entries := bounds{0, maxInt32}
	return Conntrack{
		MaxPerCore:            r.whole("conntrack.maxPerCore", entries, 32<<10),
		Min:                   r.whole("conntrack.min", entries, 128<<10),
		TCPEstablishedTimeout: r.duration("conntrack.tcpEstablishedTimeout", 24*time.Hour),
		TCPCloseWaitTimeout:   r.duration("conntrack.tcpCloseWaitTimeout", time.Hour),
		TCPBeLiberal:          r.flag("conntrack.tcpBeLiberal", false),
		UDPTimeout:            r.duration("conntrack.udpTimeout", 0),
		UDPStreamTimeout:      r.duration("conntrack.udpStreamTimeout", 0),
	}
}

// local reads the interface of the mode only, so that the other is warned of.
func (r *reader) local() Local {
	const field = "detectLocalMode"
	l := Local{Mode: LocalMode(r.text(field, string(LocalClusterCIDR)))}
	if cidrs := r.text("clusterCIDR", ""); cidrs != "" {
		for _, s := range strings.Split(cidrs, ",") {
			l.ClusterCIDRs = append(l.ClusterCIDRs, r.cidr("clusterCIDR", strings.TrimSpace(s))...)
		}
	}
	switch l.Mode {
	case LocalClusterCIDR, LocalNodeCIDR:
	case LocalBridgeInterface:
		l.Bridge = r.required("detectLocal.bridgeInterface")
	case LocalInterfaceNamePrefix:
		l.InterfacePrefix = r.required("detectLocal.interfaceNamePrefix")
	default:
		r.fail(field, string(l.Mode), "is no way to detect local traffic", "write ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
	return l
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

// addr reads an address, leading zeros allowed as kube-proxy does.
func (r *reader) addr(path string, otherwise netip.Addr) netip.Addr {
	s := r.text(path, "")
	if s == "" {
		return otherwise
	}
	ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	if !ok {
		r.fail(path, s, "is not an IP address", "write one, such as 0.0.0.0")
	}
	return ip.Unmap()
}

// cidr returns one range, none if it is not one.
func (r *reader) cidr(path, s string) []netip.Prefix {
	_, ipNet, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		r.fail(path, s, "is not a CIDR", "write one, such as 10.244.0.0/16")
		return nil
	}
	ip, _ := netip.AddrFromSlice(ipNet.IP)
	ones, _ := ipNet.Mask.Size()
	return []netip.Prefix{netip.PrefixFrom(ip, ones)}
}

// hostPort reads an address with a port; without one it gets the default port.
func (r *reader) hostPort(path, host string, port int) string {
	s := r.text(path, "")
	if s == "" {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if netutils.ParseIPSloppy(s) != nil {
		return net.JoinHostPort(s, strconv.Itoa(port))
	}
	h, p, err := net.SplitHostPort(s)
	n, notNumber := strconv.Atoi(p)
	if err != nil || netutils.ParseIPSloppy(h) == nil || notNumber != nil || n < 1 || n > 65535 {
		r.fail(path, s, "is not an IP address and a port", "write them as "+net.JoinHostPort(host, strconv.Itoa(port)))
	}
	return s
}
