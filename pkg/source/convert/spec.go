package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// maxAffinity is the longest session affinity there may be, in seconds.
const maxAffinity = 86400

// affinityTimeout returns the seconds of the session affinity, 0 without one.
func (f *findings) affinityTimeout(spec *corev1.ServiceSpec) uint32 {
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return 0
	case corev1.ServiceAffinityClientIP:
	default:
		f.add("spec.sessionAffinity", string(spec.SessionAffinity), "is not a session affinity", "write None or ClientIP")
		return 0
	}
	c := spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return uint32(corev1.DefaultClientIPServiceAffinitySeconds)
	}
	seconds := *c.ClientIP.TimeoutSeconds
	if seconds < 1 || seconds > maxAffinity {
		f.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", strconv.Itoa(int(seconds)), "is out of range",
			fmt.Sprintf("give it 1 to %d seconds", maxAffinity))
		return 0
	}
	return uint32(seconds)
}

// maxSourceRanges is how many source ranges a Service can have: all Services share
// one map.
const maxSourceRanges = 4096

// sourceRanges returns the prefixes that clients of the load balancer may come
// from. A prefix of length 0 means that its family is not restricted at all,
// whatever else there is. One that cannot be read rejects the Service: without
// it the rest might mean everybody.
func (f *findings) sourceRanges(values []string) []netip.Prefix {
	var ranges []netip.Prefix
	known := map[netip.Prefix]bool{}
	var free4, free6 bool
	for i, value := range values {
		p, ok := f.prefix(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), strings.TrimSpace(value))
		switch {
		case !ok:
		case p.Bits() == 0:
			free4, free6 = free4 || p.Addr().Is4(), free6 || p.Addr().Is6()
		case !known[p]:
			known[p] = true
			ranges = append(ranges, p)
		}
	}
	if len(ranges) > maxSourceRanges {
		f.add("spec.loadBalancerSourceRanges", "", fmt.Sprintf("has %d prefixes, more than the %d that a Service can have", len(ranges), maxSourceRanges),
			"join neighbouring prefixes")
		return nil
	}
	return slices.DeleteFunc(ranges, func(p netip.Prefix) bool {
		return p.Addr().Is4() && free4 || p.Addr().Is6() && free6
	})
}

// prefix parses a prefix in CIDR notation and clears its host bits.
func (f *findings) prefix(field, value string) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(value)
	if err != nil || p.Addr().Is4In6() {
		f.add(field, value, "is not a prefix", `write one in CIDR notation, such as "192.0.2.0/24" or "2001:db8::/32"`)
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// healthCheckNodePort returns the port of the health check, which exists only
// where nodes differ for a load balancer.
func (f *findings) healthCheckNodePort(spec *corev1.ServiceSpec, external lb.TrafficPolicy) uint16 {
	if spec.Type != corev1.ServiceTypeLoadBalancer || external != lb.PolicyLocal || spec.HealthCheckNodePort == 0 {
		return 0
	}
	return f.port("spec.healthCheckNodePort", spec.HealthCheckNodePort)
}
