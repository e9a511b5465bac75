package lb

import "net/netip"

// Update is a batch of changes from a source. It is taken as one: what it
// brings is programmed together.
type Update struct {
	Services map[ServiceName]*Service // nil value: the Service is gone
	Slices   map[SliceName]*Slice     // nil value: the slice is gone
	Node     *Node                    // nil: as before

	// NodeAddresses are the addresses of all nodes by name, of which nobody is told
	// unless probes are allowed; nil value: the node is gone.
	NodeAddresses map[string][]netip.Addr

	// Nodes are all nodes by name, of which nobody is told unless packets are carried; nil value:
	// the node is gone.
	Nodes map[string]*Node

	// PodRanges are the pod ranges of Nodes, by name, masked. A nil value means that the Node has
	// none, or is gone. Other Nodes than this one appear as in Nodes.
	PodRanges map[string][]netip.Prefix

	// Pods are those on this node, of which nobody is told unless some are to
	// be balanced by their packets; nil value: the Pod is gone.
	Pods map[PodName]*Pod

	// ServiceCIDRs is all prefixes that ClusterIPs are taken from, sorted (KEP-1880).
	// nil: as before, which at first is unknown.
	ServiceCIDRs []netip.Prefix

	// APIServers are where this node reaches its API servers. nil: as before.
	APIServers []AddrPort

	// Problems is what is wrong with the input now, not only what this update
	// brought: of a source, MostTogether problems at most.
	Problems []Problem
	// MoreProblems is how many there are besides these.
	MoreProblems int
	// Frozen names the Services that are bad, and were never good since this
	// process started: what the kernel has of them stays. FrozenEndpoints names
	// those of which a slice is bad that was never good: what the kernel has of
	// their endpoints stays, beside what other slices say. Like Problems, both
	// are complete sets.
	Frozen, FrozenEndpoints map[ServiceName]bool
	// Partial is set while some input cannot be read at all, so that
	// objects may exist that the source has never seen.
	Partial bool
}
