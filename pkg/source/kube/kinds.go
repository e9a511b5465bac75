package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// The kinds of objects.
const (
	serviceKind = "Service"
	sliceKind   = "EndpointSlice"
	nodeKind    = "Node"
	cidrKind    = "ServiceCIDR"
	podKind     = "Pod"
	eventKind   = "Event" // is written only
)

func services(opts convert.Options) kind[lb.Service] {
	return kind[lb.Service]{
		name:  serviceKind,
		read:  func(obj any) (*lb.Service, error) { return opts.Service(obj.(*corev1.Service)) },
		same:  lb.EqualServices,
		owner: func(obj any) lb.ServiceName { return lb.ServiceName(nameOf(obj)) },
		put:   func(u *lb.Update, n name, v *lb.Service) { u.Services[lb.ServiceName(n)] = v },
	}
}

func endpointSlices() kind[lb.Slice] {
	return kind[lb.Slice]{
		name: sliceKind,
		read: func(obj any) (*lb.Slice, error) { return convert.Slice(obj.(*discoveryv1.EndpointSlice)) },
		same: lb.EqualSlices,
		owner: func(obj any) lb.ServiceName {
			es := obj.(*discoveryv1.EndpointSlice)
			return lb.ServiceName{Namespace: es.Namespace, Name: es.Labels[discoveryv1.LabelServiceName]}
		},
		put: func(u *lb.Update, n name, v *lb.Slice) { u.Slices[lb.SliceName(n)] = v },
	}
}

// nodes is this node alone: the selector of its watch leaves no other.
func nodes(nodeName string) kind[lb.Node] {
	return kind[lb.Node]{
		name:  nodeKind,
		read:  func(obj any) (*lb.Node, error) { return convert.Node(obj.(*corev1.Node)) },
		same:  func(a, b *lb.Node) bool { return *a == *b },
		owner: func(any) lb.ServiceName { return lb.ServiceName{} },
		put: func(u *lb.Update, _ name, v *lb.Node) {
			if v == nil {
				v = &lb.Node{Name: nodeName}
			}
			u.Node = v
		},
	}
}

// pods are those on this node: the selector of their watch leaves no other.
func pods(opts convert.Options) kind[lb.Pod] {
	return kind[lb.Pod]{
		name:  podKind,
		read:  func(obj any) (*lb.Pod, error) { return opts.Pod(obj.(*corev1.Pod)) },
		same:  lb.EqualPods,
		owner: func(any) lb.ServiceName { return lb.ServiceName{} },
		put: func(u *lb.Update, n name, v *lb.Pod) {
			if u.Pods == nil {
				u.Pods = map[lb.PodName]*lb.Pod{}
			}
			u.Pods[lb.PodName(n)] = v
		},
	}
}

func serviceCIDRs() kind[[]netip.Prefix] {
	all := map[name][]netip.Prefix{}
	return kind[[]netip.Prefix]{
		name: cidrKind,
		read: func(obj any) (*[]netip.Prefix, error) {
			prefixes, err := convert.ServiceCIDR(obj.(*networkingv1.ServiceCIDR))
			if err != nil {
				return nil, err
			}
			return &prefixes, nil
		},
		same:  func(a, b *[]netip.Prefix) bool { return slices.Equal(*a, *b) },
		owner: func(any) lb.ServiceName { return lb.ServiceName{} },
		put: func(u *lb.Update, n name, v *[]netip.Prefix) {
			if v == nil {
				delete(all, n)
			} else {
				all[n] = *v
			}
			u.ServiceCIDRs = union(all)
		},
	}
}

// union returns the sorted prefixes of all ServiceCIDRs, never nil.
func union(all map[name][]netip.Prefix) []netip.Prefix {
	out := []netip.Prefix{}
	for _, prefixes := range all {
		out = append(out, prefixes...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
