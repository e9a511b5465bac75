package agent

import (
	"net/netip"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// Config is what an agent is told.
type Config struct {
	// Common is what Headgate and kube-proxy have in common, by the settings of kube-proxy.
	proxyconfig.Common
	Settings  map[string]any  // all of this by the names of flags, for people to read
	Manifests string          // directory of Kubernetes YAML; "" asks the API server
	Kube      kube.Config     // how to ask it; what the fields below say is filled in
	Datapath  datapath.Config // what is loaded, and where; likewise
	NodeName  string
	Convert   convert.Options // what of Services is honoured, wherever they come from
	// ProbePrefixes are where probes may go, if Convert allows them; nil is anywhere.
	ProbePrefixes []netip.Prefix
	StateDir      string // directory of what outlives an agent, "" for nowhere
	Version       string // of headgate
	// NodePortLoopback lets NodePorts answer on 127.0.0.1 and ::1.
	NodePortLoopback bool
	// ServiceCIDRs are prefixes of which every address is a Service's. Nil is
	// what the API server says.
	ServiceCIDRs []netip.Prefix
	// Devices are patterns of names of the devices on which others reach the
	// node; none chooses those that lead to other hosts.
	Devices []string
	// XDP are patterns of those of them whose driver repeats what was done to packets
	// before, or netdev.AutoXDP; none by default.
	XDP []string
	// PodDevices says which pods have their packets balanced at their own
	// devices; none of them by default.
	PodDevices        PodDevices
	Journal           *Journal // what can be asked of the log; nil is nothing
	MetricsTLS        MetricsTLS
	MetricsPerBackend bool          // /metrics tells of every backend, not only of those that fail or are compared, and of every Service port
	MetricsServices   uint32        // of how many Service ports /metrics tells, unless MetricsPerBackend
	InitOnly          bool          // do what needs privileges, and end
	Algorithm         string        // of Services that name none, as lb.Algorithms has them; "" is random
	Forwarding        Forwarding    // whose packets are carried to the nodes of their backends
	Encapsulation     Encapsulation // of what is carried to backends outside
	OuterFamily       OuterFamily   // of outer headers between nodes that have both
	IgnoreHealth      bool          // Services that do not say it do not avoid ejected backends
	HashKeyFile       string        // whose content keys the hashes of flows; "" takes a key of this node
	DSRKeyFile        string        // with one or two secrets that prove what nodes carry; "" takes that of HashKeyFile
	Limits            plan.Sizes    // entries that maps grow to at most, 0 is no limit
}

// MetricsTLS are PEM files of the server on the metrics address: its certificate with the
// chain, and its key. Both or neither is set.
type MetricsTLS struct{ CertFile, KeyFile string }

// patterns returns which devices are meant.
func (c Config) patterns() netdev.Patterns { return netdev.Patterns{Devices: c.Devices, XDP: c.XDP} }

// Cluster returns which API server is asked, and for what.
func (c Config) Cluster() kube.Config {
	k := c.Kube
	k.Node, k.Version, k.Convert, k.Pods = c.NodeName, c.Version, c.Convert, c.PodDevices.watched()
	return k
}
