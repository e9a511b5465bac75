package lb

import (
	"net/netip"
	"slices"
)

// PodName identifies a Pod.
type PodName struct {
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (n PodName) String() string { return n.Namespace + "/" + n.Name }

// Compare orders by namespace, then name.
func (n PodName) Compare(o PodName) int { return ServiceName(n).Compare(ServiceName(o)) }

// Pod is what of a Kubernetes Pod on this node matters to a load balancer: how
// to find its device. One that has the network of the node is never made into
// one, nor one that has ended.
type Pod struct {
	PodName
	Addrs []netip.Addr // at most one of each family
	// PacketsOnly says that the sockets of the pod are to be left alone, and its
	// packets to be balanced.
	PacketsOnly bool
}

// EqualPods says whether two Pods, or none (nil), are the same in every field.
func EqualPods(a, b *Pod) bool {
	return a == b || a != nil && b != nil && a.PodName == b.PodName && a.PacketsOnly == b.PacketsOnly && slices.Equal(a.Addrs, b.Addrs)
}
