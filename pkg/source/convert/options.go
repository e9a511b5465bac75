package convert

import (
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// Options is what the operator decides about the conversion. The zero value
// takes everything that kube-proxy takes.
type Options struct {
	ExternalIPs ExternalIPs
	// Probes honours the annotation AnnotationProbe: nodes then send requests where
	// whoever writes Services and EndpointSlices says.
	Probes bool
	// DSR honours the annotation AnnotationForwarding: nodes then have to know of each other.
	DSR bool
	// Forwarding is that of Services which leave it open; the zero value is SNAT.
	Forwarding lb.Forwarding
	// Outside takes endpoints of carried Services that say no node for homes of their own.
	Outside bool
	// RuntimeClasses are those of Pods whose sockets are not the node's.
	RuntimeClasses []string
}

// ExternalIPs says which spec.externalIPs of Services are honoured. Whoever may
// write a Service can take over traffic to any address with them
// (CVE-2020-8554), apart from those that package lb knows to be somebody's. The
// zero value honours all, as kube-proxy does.
type ExternalIPs struct {
	Off     bool           // honour none
	OffNode bool           // honour none that is an address of this node
	Allowed []netip.Prefix // honour only those within, unless this is empty
}

// Service is as the function of that name. Where both results are not nil, the
// Service is to be used without what the error speaks of.
func (o Options) Service(svc *corev1.Service) (*lb.Service, error) {
	out, err := Service(svc)
	if out == nil {
		return nil, err
	}
	f := &findings{object: "Service " + svc.Namespace + "/" + svc.Name}
	if out.Probe.Kind != lb.NoProbe && !o.Probes {
		f.add(annotation(AnnotationProbe), svc.Annotations[AnnotationProbe], "is not used: probes are switched off on this node",
			"leave it out, or ask the operator to allow it with --probes")
		out.Probe = lb.Probe{}
	}
	f.settleForwarding(svc, out, o)
	out.Outside = o.Outside && out.Forwarding == lb.DSR
	out.ExternalIPs = slices.DeleteFunc(out.ExternalIPs, func(addr netip.Addr) bool {
		return !f.honoured(o.ExternalIPs, addr)
	})
	return out, errors.Join(err, f.err())
}

// honoured says whether an external IP may be used, and notes where not.
func (f *findings) honoured(policy ExternalIPs, addr netip.Addr) bool {
	switch {
	case policy.Off:
		f.add("spec.externalIPs", addr.String(), "is not used: external IPs are switched off on this node",
			"remove it, or ask the operator to allow it with --external-ips")
		return false
	case len(policy.Allowed) > 0 && !slices.ContainsFunc(policy.Allowed, func(p netip.Prefix) bool { return p.Contains(addr) }):
		f.add("spec.externalIPs", addr.String(), "is not used: it is outside the prefixes that external IPs may have",
			"take an address within them, or ask the operator to add its prefix to --external-ips")
		return false
	default:
		return true
	}
}
