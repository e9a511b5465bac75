// Package proxyconfig reads the configuration file of kube-proxy, a
// KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) as kubeadm writes
// it: what applies to Headgate is returned with kube-proxy's defaults, and
// everything else that is set is named in a warning. What kube-proxy accepts is
// never an error.
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
	Client   Client
	NodeName string // hostnameOverride in lower case; "" is the name of the host
	// PrimaryIP overrides what the Node object says is the node's primary
	// address. Unspecified (0.0.0.0 or ::) is no override.
	PrimaryIP      netip.Addr
	HealthzAddress string // host:port of /healthz and /livez
	MetricsAddress string // host:port of /metrics and others
	// BindHardFail makes an address that cannot be had an error, instead of
	// something to try again.
	BindHardFail bool
	Profiling    bool
	NodePorts    NodePorts
	// NodePortLoopback says whether NodePorts answer on 127.0.0.1 and ::1.
	// kube-proxy lets IPv4 do so only.
	NodePortLoopback bool
	Local            Local
	MasqueradeAll    bool // SNAT everything that goes to a ClusterIP
	OOMScoreAdj      int  // -1000 to 1000
	Conntrack        Conntrack
	// SyncPeriod is that of the mode. An update that waits twice as long
	// makes the proxy unhealthy.
	SyncPeriod       time.Duration
	ConfigSyncPeriod time.Duration
	FeatureGates     map[string]bool // kube-proxy's; Headgate knows none
}

// Client says how to reach the API server.
type Client struct {
	Kubeconfig  string // path, "" is the ServiceAccount of the pod
	ContentType string // MIME type of requests
	QPS         float32
	Burst       int
}

// LocalMode says how to tell clients on this node from others.
type LocalMode string

// The ways to tell.
const (
	LocalClusterCIDR         LocalMode = "ClusterCIDR"         // their address is in a CIDR of the cluster
	LocalNodeCIDR            LocalMode = "NodeCIDR"            // it is in a CIDR of the Node object
	LocalBridgeInterface     LocalMode = "BridgeInterface"     // they come through this bridge
	LocalInterfaceNamePrefix LocalMode = "InterfaceNamePrefix" // or through a device named so
)

// Local says which clients are on this node.
type Local struct {
	Mode            LocalMode
	ClusterCIDRs    []netip.Prefix // of pods; set in other modes too
	Bridge          string         // with LocalBridgeInterface only
	InterfacePrefix string         // with LocalInterfaceNamePrefix only
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
