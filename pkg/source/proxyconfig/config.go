// Package proxyconfig reads what kube-proxy can be told: its configuration file,
// a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) as kubeadm writes
// it, and its flags. Settings says of each what becomes of it. What applies to
// Headgate is returned with kube-proxy's defaults, and everything else that is set
// is named in a warning. What kube-proxy accepts is never an error.
//
// The types of k8s.io/kube-proxy are not used: they bring all of component-base
// along, and cannot tell a field that is set from one that is not.
package proxyconfig

import (
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Config is what applies to Headgate, defaults resolved.
type Config struct {
	Common
	Client   Client
	NodeName string // hostnameOverride in lower case; "" is the name of the host
	// NodePortLoopback says whether NodePorts answer on 127.0.0.1 and ::1.
	// kube-proxy lets IPv4 do so only.
	NodePortLoopback bool
	Algorithm        string // of IPVS, by Headgate's name; "" in other modes
	LogLevel         string // debug or info, "" where nothing is said
	LogFormat        string // json or console, "" where nothing is said
}

// Common is what no flag of Headgate's own says.
type Common struct {
	// BindAddress is the node's primary address in its family, in place of the one
	// that the Node object has. Unspecified (0.0.0.0 or ::) takes the Node's.
	BindAddress    netip.Addr
	HealthzAddress string // host:port of /healthz and /livez, "" for nowhere
	MetricsAddress string // host:port of /metrics and others, "" for nowhere
	// BindHardFail makes an address that cannot be had an error, instead of
	// something to try again.
	BindHardFail bool
	Profiling    bool      // /debug/pprof/ on the metrics address
	NodePorts    NodePorts // on which addresses of the node they answer
	OOMScoreAdj  *int      // of the agent, -1000 to 1000; nil leaves it
	Conntrack    Conntrack
	// SyncPeriod is that of the mode. A change that waits twice as long to be
	// programmed makes the agent unhealthy.
	SyncPeriod time.Duration
}

// Client says how to reach the API server.
type Client struct {
	Kubeconfig string // path, "" is the ServiceAccount of the pod
	Server     string // URL in place of the one in the kubeconfig, "" for that
	QPS        float32
	Burst      int
}

// Conntrack are settings of the kernel's connection tracking. 0 leaves what the
// kernel has.
type Conntrack struct {
	MaxPerCore            int // entries; with 0, Min means nothing
	Min                   int // entries
	TCPEstablishedTimeout time.Duration
	TCPCloseWaitTimeout   time.Duration
	TCPBeLiberal          bool
	UDPTimeout            time.Duration
	UDPStreamTimeout      time.Duration
}

// Sets says whether anything is set, and not left as the kernel has it.
func (c Conntrack) Sets() bool {
	c.Min = min(c.Min, c.MaxPerCore) // means nothing alone
	return c != Conntrack{}
}

// NodePorts says on which addresses of the node NodePorts answer. The zero value
// is all of them.
type NodePorts struct {
	Primary bool // the primary addresses of the node
	CIDRs   []netip.Prefix
}

// Allow says whether NodePorts answer on an address of the node whose primary
// addresses are given. A family that nothing is said about is not restricted:
// this is what kube-proxy does.
func (n NodePorts) Allow(addr netip.Addr, primary []netip.Addr) bool {
	restricted := false
	if n.Primary {
		for _, p := range primary {
			restricted = restricted || sameFamily(p, addr)
		}
		if slices.Contains(primary, addr) {
			return true
		}
	}
	for _, cidr := range n.CIDRs {
		if cidr.Contains(addr) {
			return true
		}
		restricted = restricted || sameFamily(cidr.Addr(), addr)
	}
	return !restricted
}

func sameFamily(a, b netip.Addr) bool { return lb.FamilyOf(a) == lb.FamilyOf(b) }
