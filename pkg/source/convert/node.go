package convert

import (
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
