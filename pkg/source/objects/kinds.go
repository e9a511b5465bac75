package objects

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// The names of kinds that are more than one of many.
const (
	ServiceKind = "Service"
	SliceKind   = "EndpointSlice"
	NodeKind    = "Node"
)

// Kinds returns the kinds of objects that a node reads, with the selectors of
// kube-proxy.
func Kinds(node string, opts convert.Options, withPods bool) []Kind {
	kinds := []Kind{services(opts), endpointSlices(), nodes(node, opts), serviceCIDRs()}
	if withPods {
		kinds = append(kinds, pods(node, opts))
	}
	return kinds
}

// services can be selected by their field from Kubernetes 1.31 on; the conversion
// leaves out the same.
func services(opts convert.Options) Kind {
	return typed(Kind{
		Name: ServiceKind, Version: corev1.SchemeGroupVersion, Path: "services",
		New: func() Object { return &corev1.Service{} }, List: func() runtime.Object { return &corev1.ServiceList{} },
		Labels: "!" + convert.LabelServiceProxyName,
		Fields: fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone), OptionalFields: true,
		Owner: func(k Key, _ map[string]string) lb.ServiceName { return lb.ServiceName(k) },
	},
		opts.Service,
		func(a, b *lb.Service) bool { return lb.EqualServices(a, b) && a.File == b.File },
		func(u *lb.Update, k Key, v *lb.Service) { u.Services[lb.ServiceName(k)] = v })
}

func endpointSlices() Kind {
	return typed(Kind{
		Name: SliceKind, Version: discoveryv1.SchemeGroupVersion, Path: "endpointslices",
		New: func() Object { return &discoveryv1.EndpointSlice{} }, List: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		Labels: "!" + corev1.IsHeadlessService,
		Owner: func(k Key, labels map[string]string) lb.ServiceName {
			return lb.ServiceName{Namespace: k.Namespace, Name: labels[discoveryv1.LabelServiceName]}
		},
	},
		convert.Slice,
		lb.EqualSlices,
		func(u *lb.Update, k Key, v *lb.Slice) { u.Slices[lb.SliceName(k)] = v })
}

// seenNode is what is kept of a Node.
type seenNode struct {
	lb.Node
	addresses []netip.Addr // where probes are allowed, else nil
	podRanges []netip.Prefix
}

// nodes is this node; all nodes where packets are carried to them, and where probes are allowed,
// which must not go there.
func nodes(nodeName string, opts convert.Options) Kind {
	k := Kind{
		Name: NodeKind, Version: corev1.SchemeGroupVersion, Path: "nodes", ClusterWide: true,
		New: func() Object { return &corev1.Node{} }, List: func() runtime.Object { return &corev1.NodeList{} },
	}
	if !opts.Probes && !opts.DSR {
		k.Only, k.Fields = nodeName, fields.OneTermEqualSelector("metadata.name", nodeName)
	}
	return typed(k,
		func(n *corev1.Node) (*seenNode, error) {
			read, err := convert.Node(n)
			if err != nil {
				return nil, err
			}
			out := &seenNode{Node: *read}
			out.podRanges, err = convert.PodRanges(n)
			if opts.Probes {
				out.addresses = convert.NodeAddresses(n)
			}
			return out, err
		},
		func(a, b *seenNode) bool {
			return a.Node == b.Node && slices.Equal(a.addresses, b.addresses) && slices.Equal(a.podRanges, b.podRanges)
		},
		func(u *lb.Update, k Key, v *seenNode) {
			there := v != nil
			if !there {
				v = &seenNode{Node: lb.Node{Name: k.Name}}
			}
			if k.Name == nodeName {
				u.Node = &v.Node
			}
			if u.PodRanges == nil {
				u.PodRanges = map[string][]netip.Prefix{}
			}
			u.PodRanges[k.Name] = v.podRanges
			if opts.DSR {
				if u.Nodes == nil {
					u.Nodes = map[string]*lb.Node{}
				}
				if u.Nodes[k.Name] = nil; there {
					u.Nodes[k.Name] = &v.Node
				}
			}
			if opts.Probes {
				if u.NodeAddresses == nil {
					u.NodeAddresses = map[string][]netip.Addr{}
				}
				u.NodeAddresses[k.Name] = v.addresses
			}
		})
}

// pods are those on this node.
func pods(node string, opts convert.Options) Kind {
	return typed(Kind{
		Name: "Pod", Version: corev1.SchemeGroupVersion, Path: "pods",
		New: func() Object { return &corev1.Pod{} }, List: func() runtime.Object { return &corev1.PodList{} },
		Fields: fields.OneTermEqualSelector("spec.nodeName", node),
	},
		func(p *corev1.Pod) (*lb.Pod, error) {
			if p.Spec.NodeName != node {
				return nil, nil
			}
			return opts.Pod(p)
		},
		lb.EqualPods,
		func(u *lb.Update, k Key, v *lb.Pod) {
			if u.Pods == nil {
				u.Pods = map[lb.PodName]*lb.Pod{}
			}
			u.Pods[lb.PodName(k)] = v
		})
}

// serviceCIDRs are in version v1beta1 from Kubernetes 1.31 on, laid out as in version 1,
// which comes with 1.33.
func serviceCIDRs() Kind {
	all := map[Key][]netip.Prefix{}
	return typed(Kind{
		Name: "ServiceCIDR", Version: networkingv1.SchemeGroupVersion, Path: "servicecidrs", ClusterWide: true, APIOnly: true,
		Earlier: schema.GroupVersion{Group: networkingv1.GroupName, Version: "v1beta1"},
		New:     func() Object { return &networkingv1.ServiceCIDR{} }, List: func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
	},
		func(c *networkingv1.ServiceCIDR) (*[]netip.Prefix, error) {
			prefixes, err := convert.ServiceCIDR(c)
			if err != nil {
				return nil, err
			}
			return &prefixes, nil
		},
		func(a, b *[]netip.Prefix) bool { return slices.Equal(*a, *b) },
		func(u *lb.Update, k Key, v *[]netip.Prefix) {
			if v == nil {
				delete(all, k)
			} else {
				all[k] = *v
			}
			u.ServiceCIDRs = union(all)
		})
}

// union returns the sorted prefixes of all ServiceCIDRs, never nil.
func union(all map[Key][]netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{}
	for _, prefixes := range all {
		out = append(out, prefixes...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
