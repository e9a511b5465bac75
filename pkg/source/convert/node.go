package convert

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// taintToBeDeleted is put on a node that the cluster autoscaler is about to
// remove (KEP-3836).
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// Node returns what matters of a Node. Problems reads the error.
func Node(n *corev1.Node) (*lb.Node, error) {
	f := &findings{object: "Node " + n.Name}
	f.name("metadata.name", n.Name, true)
	if err := f.err(); err != nil {
		return nil, err
	}
	out := &lb.Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Leaving: n.DeletionTimestamp != nil}
	for _, t := range n.Spec.Taints {
		out.Leaving = out.Leaving || t.Key == taintToBeDeleted
	}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip.Is4() && !out.IP4.IsValid() {
			out.IP4 = ip
		}
		if ip.Is6() && !out.IP6.IsValid() {
			out.IP6 = ip
		}
	}
	return out, nil
}

// PodRanges returns the prefixes from which a Node gives its pods addresses, masked, in its order.
// Those that can be used come with an error about the others, too. Problems reads it.
func PodRanges(n *corev1.Node) ([]netip.Prefix, error) {
	f := &findings{object: "Node " + n.Name}
	var ranges []netip.Prefix
	add := func(field, value string) {
		if p, ok := f.prefix(field, value); ok {
			ranges = append(ranges, p)
		}
	}
	for i, value := range n.Spec.PodCIDRs {
		add(fmt.Sprintf("spec.podCIDRs[%d]", i), value)
	}
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		add("spec.podCIDR", n.Spec.PodCIDR)
	}
	return ranges, f.err()
}

// NodeAddresses returns all addresses of a Node, sorted.
func NodeAddresses(n *corev1.Node) []netip.Addr {
	out := []netip.Addr{}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, ip.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
