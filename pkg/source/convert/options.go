package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// Options is what the operator decides about the conversion. The zero value
// takes everything that kube-proxy takes.
type Options struct {
	ExternalIPs ExternalIPs
	// RuntimeClasses are those of Pods whose sockets are not the node's.
	RuntimeClasses []string
}

// ExternalIPs says which spec.externalIPs of Services are honoured. Whoever may
// write a Service can take over traffic to any address with them
// (CVE-2020-8554). The zero value honours all, as kube-proxy does.
type ExternalIPs struct {
	Off     bool           // honour none
	Allowed []netip.Prefix // honour only those within, unless this is empty
}

// Service is as the function of that name. Where both results are not nil, the
// Service is to be used without what the error speaks of.
func (o Options) Service(svc *corev1.Service) (*lb.Service, error) {
	out, err := Service(svc)
	if out == nil {
		return out, err
	}
	f := &findings{object: "Service " + out.String(), errs: []error{err}}
	out.DrainTime = f.drainTime(svc.Annotations)
	out.ExternalIPs = slices.DeleteFunc(out.ExternalIPs, func(addr netip.Addr) bool {
		return !f.honoured(o.ExternalIPs, addr)
	})
	return out, f.err()
}

// honoured says whether an external IP may be used, and notes where not.
func (f *findings) honoured(policy ExternalIPs, addr netip.Addr) bool {
	switch {
	case policy.Off:
		f.add("spec.externalIPs", addr.String(), "is not used: external IPs are switched off on this node",
			"remove it, or ask the operator to allow it")
		return false
	case len(policy.Allowed) > 0 && !slices.ContainsFunc(policy.Allowed, func(p netip.Prefix) bool { return p.Contains(addr) }):
		f.add("spec.externalIPs", addr.String(), "is not used: it is outside the prefixes that external IPs may have",
			"take an address within them, or ask the operator to allow it")
		return false
	default:
		return true
	}
}
