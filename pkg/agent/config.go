package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// Config is what an agent is told.
type Config struct {
	Manifests string      // directory of Kubernetes YAML; "" asks the API server
	Kube      kube.Config // how to ask it; Node and Version are filled in
	NodeName  string
	Convert   convert.Options // what of Services is honoured, wherever they come from
	Cgroup    string          // cgroup2 directory; "" is the root of the file system
	BPFRoot   string          // directory in a BPF file system
	StateDir  string          // directory of what outlives an agent, "" for nowhere
	Version   string          // of headgate
	// NodePorts says on which addresses of the node NodePorts answer.
	NodePorts proxyconfig.NodePorts
	// NodePortLoopback lets NodePorts answer on 127.0.0.1 and ::1.
	NodePortLoopback bool
	// ServiceCIDRs are prefixes of which every address is a Service's. Nil is
	// what the API server says.
	ServiceCIDRs []netip.Prefix
	// Devices are patterns of names of the devices on which others reach the
	// node; none chooses those with a default route, and tunnels.
	Devices []string
	// PodDevices says which pods have their packets balanced at their own
	// devices; none of them by default.
	PodDevices PodDevices
	// Redirect lets packets to backends on other nodes leave past the stack.
	Redirect bool
	// Filters attaches to devices as on kernels without tcx.
	Filters           bool
	HealthzAddress    string // host:port of /healthz and /livez, "" for none
	MetricsAddress    string // host:port of /metrics and others, "" for none
	MetricsPerBackend bool   // /metrics tells of every backend, not only of those that fail or are compared
	InitOnly          bool   // do what needs privileges, and end
	BindHardFail      bool   // an address that cannot be had ends the agent
	Profiling         bool   // /debug/pprof/ on the metrics address
	// KernelConntrack configures the kernel's connection tracking; the zero
	// value leaves it as it is.
	KernelConntrack proxyconfig.Conntrack
	Promises        uint32     // sockets in the promises map, a power of two
	Affinities      uint32     // clients in the affinities map
	Flows           uint32     // entries of the conntrack map
	Algorithm       string     // of Services that name none, as lb.Algorithms has them; "" is random
	IgnoreHealth    bool       // Services that do not say it do not avoid suspects
	SuspectAfter    uint32     // failures in a row that make a backend a suspect, 0: none is ever one
	MaxEjected      uint32     // of the slots of a table no more are avoided, in per cent
	HashKeyFile     string     // whose content keys the hashes of flows; "" takes the cluster's certificate authority
	Limits          plan.Sizes // entries that maps grow to at most, 0 is no limit
}

// Validate returns an error that names the first field that makes no sense.
func (c Config) Validate() error {
	switch {
	case c.NodeName == "":
		return errors.New("no node name: say which Node this is with --node-name")
	case !slices.Contains([]PodDevices{"", PodDevicesNone, PodDevicesMarked, PodDevicesAll}, c.PodDevices):
		return fmt.Errorf("--pod-devices %q: write none, marked or all", c.PodDevices)
	case c.Promises == 0 || c.Promises&(c.Promises-1) != 0:
		return fmt.Errorf("--promises %d: not a power of two", c.Promises)
	case c.MaxEjected > 100:
		return fmt.Errorf("--max-ejected-percent %d: write 0 to 100", c.MaxEjected)
	case c.Affinities == 0:
		return errors.New("--affinities 0: must be positive")
	case !isAlgorithm(c.Algorithm):
		return fmt.Errorf("--algorithm %q: not an algorithm; write one of %s", c.Algorithm, strings.Join(lb.Algorithms(), ", "))
	}
	return nil
}
