package convert

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func affinity(kind corev1.ServiceAffinity, seconds ...int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.SessionAffinity = kind
		for _, n := range seconds {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &n}}
		}
	}
}

func sourceRanges(ranges ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

func healthCheck(t corev1.ServiceType, policy corev1.ServiceExternalTrafficPolicy, port int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = t, policy, port
	}
}

func TestAffinityLastsAsLongAsTheServiceSays(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*corev1.Service)
		want  uint32
	}{
		{"unsaid is none", affinity(""), 0},
		{"None is none, whatever the timeout", affinity("None", 60), 0},
		{"ClientIP lasts three hours", affinity("ClientIP"), 10800},
		{"ClientIP without a timeout in its config", func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = "ClientIP", &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}
		}, 10800},
		{"ClientIP with a timeout", affinity("ClientIP", 86400), 86400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Service(service(tc.alter)); err != nil || got.AffinityTimeout != tc.want {
				t.Errorf("got %v, %v, want %d", got, err, tc.want)
			}
		})
	}
}

func TestSourceRangesAreKeptByFamily(t *testing.T) {
	for _, tc := range []struct {
		name  string
		given []string
		want  []netip.Prefix
	}{
		{"none", nil, nil},
		{"trimmed, masked, once", []string{" 10.1.2.3/8 ", "10.0.0.0/8", "2001:db8::/32\t"}, prefixes("10.0.0.0/8", "2001:db8::/32")},
		{"everything in IPv4 leaves IPv6 restricted", []string{"10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"}, prefixes("2001:db8::/32")},
		{"everything in IPv6 leaves IPv4 restricted", []string{"::/0", "10.0.0.0/8", "2001:db8::/32"}, prefixes("10.0.0.0/8")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Service(service(sourceRanges(tc.given...)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.SourceRanges, comparePrefixes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHealthCheckNodePortIsForLocalLoadBalancersOnly(t *testing.T) {
	for _, tc := range []struct {
		t      corev1.ServiceType
		policy corev1.ServiceExternalTrafficPolicy
		want   uint16
	}{
		{"LoadBalancer", "Local", 31000},
		{"LoadBalancer", "Cluster", 0},
		{"NodePort", "Local", 0},
	} {
		t.Run(string(tc.t)+" "+string(tc.policy), func(t *testing.T) {
			got, err := Service(service(healthCheck(tc.t, tc.policy, 31000)))
			if err != nil || got.HealthCheckNodePort != tc.want {
				t.Errorf("got %v, %v, want %d", got, err, tc.want)
			}
		})
	}
}

func TestPoliciesThatTheAPIWouldRefuseAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*corev1.Service)
		want  string
	}{
		{"unknown affinity", affinity("Cookie"), `spec.sessionAffinity "Cookie": is not a session affinity; write None or ClientIP`},
		{"affinity of no time", affinity("ClientIP", 0), `spec.sessionAffinityConfig.clientIP.timeoutSeconds "0": is out of range; give it 1 to 86400 seconds`},
		{"affinity over a day", affinity("ClientIP", 86401), `spec.sessionAffinityConfig.clientIP.timeoutSeconds "86401": is out of range; give it 1 to 86400 seconds`},
		{"source range that is none", sourceRanges("10.0.0.0/8", "10.0.0.1"), `spec.loadBalancerSourceRanges[1] "10.0.0.1": is not a prefix; write one in CIDR notation, such as "192.0.2.0/24" or "2001:db8::/32"`},
		{"IPv4-mapped source range", sourceRanges("::ffff:10.0.0.0/104"), `spec.loadBalancerSourceRanges[0] "::ffff:10.0.0.0/104": is not a prefix; write one in CIDR notation, such as "192.0.2.0/24" or "2001:db8::/32"`},
		{"health check port out of range", healthCheck("LoadBalancer", "Local", 70000), `spec.healthCheckNodePort "70000": is out of range; give it a port from 1 to 65535`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Service(service(tc.alter))
			wantProblems(t, got == nil, err, "Service default/web: "+tc.want)
		})
	}
}

func TestExternalIPsAreUsedWhereTheOperatorAllows(t *testing.T) {
	const outside = ": is not used: it is outside the prefixes that external IPs may have; take an address within them, or ask the operator to add its prefix to --external-ips"
	for _, tc := range []struct {
		name   string
		policy ExternalIPs
		want   []netip.Addr
		said   []string
	}{
		{"all without a policy", ExternalIPs{}, addrs("203.0.113.1", "2001:db8::1"), nil},
		{"those within", ExternalIPs{Allowed: prefixes("203.0.113.0/24", "198.51.100.0/24")}, addrs("203.0.113.1"),
			[]string{`Service default/web: spec.externalIPs "2001:db8::1"` + outside}},
		{"none where they are off", ExternalIPs{Off: true, Allowed: prefixes("203.0.113.0/24")}, nil, []string{
			`Service default/web: spec.externalIPs "203.0.113.1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it with --external-ips`,
			`Service default/web: spec.externalIPs "2001:db8::1": is not used: external IPs are switched off on this node; remove it, or ask the operator to allow it with --external-ips`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Options{ExternalIPs: tc.policy}.Service(service(func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"203.0.113.1", "2001:db8::1"}
			}))
			wantProblems(t, true, err, tc.said...)
			if got == nil || len(got.Ports) != 1 {
				t.Fatalf("got %v: the rest is not used", got)
			}
			if diff := cmp.Diff(tc.want, append([]netip.Addr(nil), got.ExternalIPs...), compareAddrs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABadServiceIsRejectedWhateverTheOptions(t *testing.T) {
	got, err := Options{ExternalIPs: ExternalIPs{Off: true}}.Service(service(clusterIPs("x"), externalIP("203.0.113.1")))
	if got != nil || err == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestSliceKnowsWhatItWasLastChangedFor(t *testing.T) {
	for _, tc := range []struct {
		name, given string
		want        time.Time
	}{
		{"with fractions of a second", "2026-11-01T12:00:00.123456789Z", time.Date(2026, 11, 1, 12, 0, 0, 123456789, time.UTC)},
		{"without", "2026-11-01T12:00:00Z", time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)},
		{"not said", "", time.Time{}},
		{"not a time", "yesterday", time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Slice(slice(func(es *discoveryv1.EndpointSlice) {
				es.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": tc.given}
			}))
			if err != nil || !got.LastChangeTrigger.Equal(tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestSlicesThatDifferInTheirTriggerAreEqual(t *testing.T) {
	a, _ := Slice(slice())
	b, _ := Slice(slice())
	b.LastChangeTrigger = time.Unix(1, 0)
	if !lb.EqualSlices(a, b) {
		t.Error("they are not")
	}
}

func TestServiceCIDRIsItsPrefixes(t *testing.T) {
	cidr := func(cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	got, err := ServiceCIDR(cidr("10.96.0.1/16", "fd00:96::/108"))
	if diff := cmp.Diff(prefixes("10.96.0.0/16", "fd00:96::/108"), got, comparePrefixes); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = ServiceCIDR(cidr("10.96.0.0/16", "fd00:96::"))
	wantProblems(t, got == nil, err, `ServiceCIDR kubernetes: spec.cidrs[1] "fd00:96::": is not a prefix; write one in CIDR notation, such as "192.0.2.0/24" or "2001:db8::/32"`)
}

func TestAServiceHasAShareOfTheSourceRanges(t *testing.T) {
	for _, n := range []int{maxSourceRanges, maxSourceRanges + 1} {
		got, err := Service(service(func(s *corev1.Service) {
			for i := range n {
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
			}
		}))
		if n <= maxSourceRanges {
			if err != nil || len(got.SourceRanges) != n {
				t.Errorf("%d ranges: %v", n, err)
			}
			continue
		}
		wantProblems(t, got == nil, err, "Service default/web: spec.loadBalancerSourceRanges: has 4097 prefixes, more than the 4096 that a Service can have; join neighbouring prefixes")
	}
}
