package convert

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// AnnotationForwarding says how packets of clients elsewhere get to backends on other nodes:
// one of lb.Forwardings.
const AnnotationForwarding = "headgate.dev/forwarding"

func (f *findings) forwarding(value string) lb.Forwarding {
	return oneOf(f, AnnotationForwarding, value, "is not a way of forwarding", lb.ParseForwarding, lb.Forwardings())
}

// settleForwarding gives a Service that leaves it open the forwarding of the configuration,
// and finds what keeps one from what it asks for.
func (f *findings) settleForwarding(svc *corev1.Service, out *lb.Service, o Options) {
	if out.Forwarding == lb.ForwardingDefault {
		out.Forwarding = o.Forwarding
		return
	}
	if out.Forwarding != lb.DSR {
		return
	}
	reason, remedy := notCarried(out)
	if !o.DSR {
		out.Forwarding = lb.SNAT
		reason, remedy = "is not used: DSR is switched off on this node", "leave it out, or ask the operator to allow it with --forwarding marked"
	}
	if reason != "" {
		f.add(annotation(AnnotationForwarding), svc.Annotations[AnnotationForwarding], reason, remedy)
	}
}

// notCarried says why clients elsewhere get by SNAT what a Service wants carried, "" where
// nothing is to be said.
func notCarried(svc *lb.Service) (reason, remedy string) {
	external := len(svc.LoadBalancerIPs)+len(svc.ExternalIPs) > 0
	kind := lb.ClusterIP
	if external {
		kind = lb.LoadBalancerIP
	}
	for _, p := range svc.Ports {
		switch {
		case svc.Algorithm != lb.AlgorithmDefault && !svc.Algorithm.Hashed():
			return "is not used: the algorithm " + svc.Algorithm.String() + " does not choose by a hash, so nodes choose differently",
				"leave out " + AnnotationAlgorithm + ", or write one of stable, maglev, sh, dh"
		case external && svc.ExternalPolicy == lb.PolicyLocal:
			return "is not used: with externalTrafficPolicy Local clients get backends on the node where they come in",
				"write externalTrafficPolicy: Cluster, or leave the annotation out"
		case p.NodePort != 0 && !external:
			return "is not used for NodePorts: each is an address of one node",
				"give clients a load balancer IP or an external IP, or leave the annotation out"
		case !svc.Carries(kind, p.Protocol):
			return "is not used for all ports: only TCP and UDP are carried, and only with traffic policy Cluster",
				"leave the annotation out, or give these ports a Service of their own"
		}
	}
	return "", ""
}
