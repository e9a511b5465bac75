package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// LabelServiceProxyName hands a Service to another proxy (KEP-2447).
const LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// Service returns what matters of a Service, or nil and no error where no
// proxy implements it: headless, ExternalName, or another proxy's. Problems
// reads the error. Where both results are not nil, the Service is to be used
// without what the error speaks of.
func Service(svc *corev1.Service) (*lb.Service, error) {
	if !implemented(svc) {
		return nil, nil
	}
	out := &lb.Service{ServiceName: lb.ServiceName{Namespace: svc.Namespace, Name: svc.Name}}
	out.Age = ageOf(svc)
	f := &findings{object: "Service " + out.String()}
	f.name("metadata.name", svc.Name, false)
	f.name("metadata.namespace", svc.Namespace, false)
	f.serviceType(svc.Spec.Type)
	out.ClusterIPs = f.clusterIPs(&svc.Spec)
	out.ExternalIPs = f.externalIPs(svc.Spec.ExternalIPs)
	out.LoadBalancerIPs = f.loadBalancerIPs(svc.Status.LoadBalancer.Ingress)
	out.InternalPolicy, out.ExternalPolicy = f.policies(&svc.Spec)
	out.Ports = f.servicePorts(&svc.Spec)
	out.SourceRanges = f.sourceRanges(svc.Spec.LoadBalancerSourceRanges)
	out.HealthCheckNodePort = f.healthCheckNodePort(&svc.Spec, out.ExternalPolicy)
	problems := setPolicy(svc, out)
	out.AffinityTimeout = f.affinityTimeout(&svc.Spec)
	if err := f.err(); err != nil {
		return nil, errors.Join(err, problems.err())
	}
	return out, problems.err()
}

// ageOf returns how old a Service is, which decides who gets an address that
// several want.
func ageOf(svc *corev1.Service) lb.Age {
	age := lb.Age{UID: string(svc.UID)}
	if !svc.CreationTimestamp.IsZero() {
		age.Created = svc.CreationTimestamp.Unix()
	}
	return age
}

// implemented says whether a proxy implements the Service at all.
func implemented(svc *corev1.Service) bool {
	if _, ok := svc.Labels[LabelServiceProxyName]; ok {
		return false
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	ip := svc.Spec.ClusterIP
	if ip == "" && len(svc.Spec.ClusterIPs) > 0 {
		ip = svc.Spec.ClusterIPs[0]
	}
	return ip != "" && ip != corev1.ClusterIPNone
}

func (f *findings) serviceType(t corev1.ServiceType) {
	switch t {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		f.add("spec.type", string(t), "is not a type of Service",
			"write ClusterIP, NodePort, LoadBalancer or ExternalName")
	}
}

// clusterIPs returns one address of each family (KEP-563).
func (f *findings) clusterIPs(spec *corev1.ServiceSpec) []netip.Addr {
	if len(spec.ClusterIPs) == 0 {
		addr, ok := f.unicast("spec.clusterIP", spec.ClusterIP)
		if !ok {
			return nil
		}
		return []netip.Addr{addr}
	}
	if spec.ClusterIP != "" && spec.ClusterIP != spec.ClusterIPs[0] {
		f.add("spec.clusterIPs[0]", spec.ClusterIPs[0], fmt.Sprintf("differs from spec.clusterIP %q", spec.ClusterIP),
			"write the same address in both")
	}
	var addrs []netip.Addr
	for i, value := range spec.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		addr, ok := f.unicast(field, value)
		if !ok {
			continue
		}
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			f.add(field, value, "is a second address of its family", "leave one IPv4 and one IPv6 address at most")
			continue
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

func (f *findings) externalIPs(values []string) []netip.Addr {
	var addrs []netip.Addr
	for i, value := range values {
		addr, ok := f.unicast(fmt.Sprintf("spec.externalIPs[%d]", i), value)
		if ok && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// loadBalancerIPs leaves out host names, and addresses where the load balancer
// answers itself (ipMode Proxy, KEP-1860).
func (f *findings) loadBalancerIPs(ingress []corev1.LoadBalancerIngress) []netip.Addr {
	var addrs []netip.Addr
	for i, in := range ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		addr, ok := f.ingress(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), in.IP)
		if ok && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func (f *findings) policies(spec *corev1.ServiceSpec) (internal, external lb.TrafficPolicy) {
	if spec.InternalTrafficPolicy != nil {
		internal = f.policy("spec.internalTrafficPolicy", string(*spec.InternalTrafficPolicy))
	}
	external = f.policy("spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy))
	return internal, external
}

func (f *findings) policy(field, value string) lb.TrafficPolicy {
	switch value {
	case "", string(corev1.ServiceExternalTrafficPolicyCluster):
	case string(corev1.ServiceExternalTrafficPolicyLocal):
		return lb.PolicyLocal
	default:
		f.add(field, value, "is not a traffic policy", "write Cluster or Local")
	}
	return lb.PolicyCluster
}
