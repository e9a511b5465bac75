// Package lb is the meaning of a Kubernetes Service, without Kubernetes and
// without a kernel: which addresses clients use (frontends), and which of the
// endpoints usable from this node stand behind each of them (backends).
//
// It is pure: values in, values out, standard library only. The specification
// is that of kube-proxy (k8s.io/kubernetes/pkg/proxy).
package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Protocol is the IP protocol number of a transport protocol (IANA).
type Protocol uint8

// The transport protocols that a Service port can have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the name that Kubernetes uses, such as "TCP".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	default:
		return fmt.Sprintf("protocol-%d", uint8(p))
	}
}

// TrafficPolicy says which endpoints a class of clients may reach (KEP-2086).
type TrafficPolicy uint8

// The traffic policies.
const (
	PolicyCluster TrafficPolicy = iota // every usable endpoint
	PolicyLocal                        // only endpoints on the client's node
)

// ServiceName identifies a Service.
type ServiceName struct {
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (n ServiceName) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then name.
func (n ServiceName) Compare(o ServiceName) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Service is what of a Kubernetes Service matters to a load balancer. A
// Service that no proxy implements (headless, ExternalName) is never made into
// one.
type Service struct {
	ServiceName
	Age             Age
	File            string       // that it was read from, "" where it came from an API server
	ClusterIPs      []netip.Addr // at most one of each family
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr // ingress addresses with ipMode VIP
	InternalPolicy  TrafficPolicy
	ExternalPolicy  TrafficPolicy
	Ports           []ServicePort
	Policy
	// Weights come before those of EndpointSlices. Sorted by address.
	Weights []EndpointWeight
	// KeepPolicy is set where an annotation cannot be used: what all said before of
	// policy and weights stays in force. Where that is not known, it is what the others say.
	KeepPolicy bool

	// SourceRanges are the prefixes that may use the LoadBalancerIPs, masked. A
	// family of which there is none is not restricted.
	SourceRanges []netip.Prefix
	// HealthCheckNodePort is where a load balancer asks whether this node has
	// endpoints of the Service; host order, 0 means nowhere.
	HealthCheckNodePort uint16
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string // "" only where the Service has a single port
	Protocol Protocol
	Port     uint16 // host order, never 0
	NodePort uint16 // host order, 0 means none
}

// ExternallyAccessible says whether clients outside the cluster can have an
// address for port p of the Service. ExternalPolicy matters only then.
func (s *Service) ExternallyAccessible(p ServicePort) bool {
	return p.NodePort != 0 || len(s.LoadBalancerIPs) > 0 || len(s.ExternalIPs) > 0
}

// SliceName identifies an EndpointSlice.
type SliceName struct {
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (n SliceName) String() string { return n.Namespace + "/" + n.Name }

// Slice is what of a Kubernetes EndpointSlice matters to a load balancer.
type Slice struct {
	SliceName
	Service   string // name of the Service, in the namespace of the slice
	Ports     []SlicePort
	Endpoints []Endpoint
	// KeepWeights is set where the weight that the slice says cannot be used:
	// endpoints keep those that they had.
	KeepWeights bool

	// LastChangeTrigger is when that happened, in the cluster, which led to the
	// last change of the slice; zero where unknown. It means nothing for what
	// the slice says: slices that differ only in it are equal.
	LastChangeTrigger time.Time
}

// SlicePort is a port that every endpoint of a slice serves.
type SlicePort struct {
	Name     string // equals the name of the Service port it stands behind
	Protocol Protocol
	Port     uint16 // host order, never 0
}

// Endpoint is one address of a slice with its conditions, defaults resolved:
// Ready and Serving are true and Terminating false where the slice says nothing.
type Endpoint struct {
	Addr        netip.Addr
	Pod         string // name of its Pod, in the namespace of the slice; "" where unknown. For people alone
	Where       Shared
	Weight      uint32 // share of the connections; 0: DefaultWeight
	Ready       bool
	Serving     bool
	Terminating bool
	Drained     bool // of weight 0: no new connections
}

// Node is this node. Endpoint selection depends on its name and zone.
type Node struct {
	Name     string
	Zone     string     // label topology.kubernetes.io/zone, "" where it has none
	IP4, IP6 netip.Addr // primary addresses, the zero Addr where it has none
	Leaving  bool       // load balancers should send no more clients here
}

// FrontendKind says what kind of Service address a frontend is.
type FrontendKind uint8

// The kinds of frontends.
const (
	ClusterIP FrontendKind = iota
	NodePort
	LoadBalancerIP
	ExternalIP
)

// String returns the name of the kind, such as "ClusterIP".
func (k FrontendKind) String() string {
	switch k {
	case ClusterIP:
		return "ClusterIP"
	case NodePort:
		return "NodePort"
	case LoadBalancerIP:
		return "LoadBalancer"
	case ExternalIP:
		return "ExternalIP"
	default:
		return fmt.Sprintf("kind-%d", uint8(k))
	}
}

// AddrPort is an address, port and protocol: what a client connects to, or
// where the traffic goes. The zero port and protocol are never valid.
type AddrPort struct {
	Addr     netip.Addr // IPv4 is never IPv4-mapped here
	Port     uint16     // host order
	Protocol Protocol
}

// String returns "10.0.0.1:80/TCP" or "[fd00::1]:80/TCP".
func (a AddrPort) String() string {
	return netip.AddrPortFrom(a.Addr, a.Port).String() + "/" + a.Protocol.String()
}

// Compare orders by address, port, protocol.
func (a AddrPort) Compare(b AddrPort) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

// Frontend is an address that clients use, and where its traffic goes. The
// address of a NodePort frontend is the unspecified address of its family: it
// stands for every address of the node.
type Frontend struct {
	AddrPort
	Kind  FrontendKind
	Age   Age    // of the Service
	Port  string // name of the Service port
	Views [NumViews]View
	// Members are all backends that the Service still has, whether or not they
	// take new connections: those of sockets are left alone. Sorted, without
	// duplicates.
	Members []AddrPort
	// SourceRanges are the clients that may use the frontend, sorted; nil is
	// everybody.
	SourceRanges []netip.Prefix
	Policy       // of the Service, with a TableSize that it may have
	// Carried says that packets of clients elsewhere go unchanged to the home of the backend
	// that the external view names. See Service.Carries.
	Carried bool
	// ExternalAlgorithm is that of the external view where it is not that of the others: all
	// nodes remember a client alike only by a hash of its address.
	ExternalAlgorithm Algorithm
	// Homes are the names of the nodes where the members of a carried frontend run, as far as
	// they are known. That of one outside, which is its own home, is its address.
	Homes map[AddrPort]string
}

// The views of a frontend, as indexes. Each client has one of the first two; the
// fallbacks stand in, in this order, where all backends of a client's view are
// ejected and the view falls back. An empty fallback is skipped.
const (
	Internal     = iota // for clients on this node
	External            // for clients elsewhere
	FallbackZone        // the backends in the zone of this node
	FallbackAll         // the backends in all zones
	NumViews
)

// ViewName returns the name of a view by its index, such as "fallback zone".
func ViewName(view int) string {
	return [NumViews]string{"internal", "external", "fallback zone", "fallback all"}[view]
}

// View is the set of backends that a class of clients reaches.
type View struct {
	Backends []AddrPort // sorted, without duplicates
	// Weights are those of the backends, none of them 0; nil where all are
	// equal.
	Weights []uint32
	// NoLocal is set where Backends is empty only because the traffic
	// policy is Local: the Service has usable endpoints on other nodes.
	NoLocal   bool
	Why       Why  // these backends and no others
	FallsBack bool // where they are all ejected, those of the fallbacks stand in
}
