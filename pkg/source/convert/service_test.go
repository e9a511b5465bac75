package convert

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// service returns a plain good Service, as altered.
func service(alter ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10",
			Ports:     []corev1.ServicePort{{Port: 80}},
		},
	}
	for _, a := range alter {
		a(svc)
	}
	return svc
}

func addrs(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestServiceWithEverythingKeepsWhatMatters(t *testing.T) {
	local, proxy, vip := corev1.ServiceInternalTrafficPolicyLocal, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP
	got, err := Service(service(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:96::10"}
		s.Spec.ExternalIPs = []string{"203.0.113.10", "2001:db8::10", "203.0.113.10"}
		s.Spec.InternalTrafficPolicy = &local
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Port: 80, NodePort: 30080},
			{Name: "dns", Port: 80, Protocol: corev1.ProtocolUDP, NodePort: 30080},
			{Name: "diameter", Port: 3868, Protocol: corev1.ProtocolSCTP},
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &vip},
			{IP: "198.51.100.3", IPMode: &proxy}, {Hostname: "lb.example"}, {IP: "fe80::1"}, {IP: "64:ff9b::198.51.100.1"},
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := &lb.Service{
		ServiceName:     lb.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs:      addrs("10.96.0.10", "fd00:96::10"),
		ExternalIPs:     addrs("203.0.113.10", "2001:db8::10"),
		LoadBalancerIPs: addrs("198.51.100.1", "198.51.100.2", "fe80::1", "64:ff9b::198.51.100.1"),
		InternalPolicy:  lb.PolicyLocal,
		ExternalPolicy:  lb.PolicyLocal,
		Ports: []lb.ServicePort{
			{Name: "http", Protocol: lb.TCP, Port: 80, NodePort: 30080},
			{Name: "dns", Protocol: lb.UDP, Port: 80, NodePort: 30080},
			{Name: "diameter", Protocol: lb.SCTP, Port: 3868},
		},
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Error(diff)
	}
}

func TestServiceAddressesOfTheCluster(t *testing.T) {
	for _, tc := range []struct {
		name string
		ip   string
		ips  []string
		want []netip.Addr
	}{
		{"clusterIP alone is enough", "10.96.0.1", nil, addrs("10.96.0.1")},
		{"clusterIPs alone are enough", "", []string{"fd00::1"}, addrs("fd00::1")},
		{"clusterIPs may begin with IPv6", "fd00::1", []string{"fd00::1", "10.96.0.1"}, addrs("fd00::1", "10.96.0.1")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Service(service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = tc.ip, tc.ips }))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.ClusterIPs, compareAddrs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServicesThatNoProxyImplementsAreNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*corev1.Service)
	}{
		{"headless", func(s *corev1.Service) { s.Spec.ClusterIP = "None" }},
		{"headless by clusterIPs", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", []string{"None"} }},
		{"no clusterIP yet", func(s *corev1.Service) { s.Spec.ClusterIP = "" }},
		{"ExternalName", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }},
		{"another proxy's", func(s *corev1.Service) { s.Labels = map[string]string{LabelServiceProxyName: ""} }},
		{"headless with ports that are not good", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = "None", nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Service(service(tc.alter)); got != nil || err != nil {
				t.Errorf("got %v, %v, want nothing", got, err)
			}
		})
	}
}

func ports(p ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = p }
}

func nodePorts(p ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeNodePort, p }
}

func clusterIPs(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips }
}

func ingress(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
	}
}

func externalIP(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = []string{ip} }
}

func TestServicesThatTheAPIWouldRefuseAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*corev1.Service)
		want  string
	}{
		{"no ports", ports(), `spec.ports: is empty: a Service needs at least one port; add a port`},
		{"port 0", ports(corev1.ServicePort{}), `spec.ports[0].port "0": is out of range; give it a port from 1 to 65535`},
		{"port 65536", ports(corev1.ServicePort{Port: 65536}), `spec.ports[0].port "65536": is out of range; give it a port from 1 to 65535`},
		{"negative nodePort", nodePorts(corev1.ServicePort{Port: 80, NodePort: -1}), `spec.ports[0].nodePort "-1": is out of range; give it a port from 1 to 65535`},
		{"nodePort without the type", ports(corev1.ServicePort{Port: 80, NodePort: 30080}), `spec.ports[0].nodePort "30080": is given, but the Service is of type ClusterIP; write type: NodePort, or remove the nodePort`},
		{"protocol in small letters", ports(corev1.ServicePort{Port: 80, Protocol: "tcp"}), `spec.ports[0].protocol "tcp": is not a protocol of Services; write TCP, UDP or SCTP`},
		{"same port twice", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 80}), `spec.ports[1].port "80": has the port and protocol of spec.ports[0]; give it another port or protocol`},
		{"same nodePort twice", nodePorts(corev1.ServicePort{Name: "a", Port: 80, NodePort: 30000}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30000}), `spec.ports[1].nodePort "30000": has the nodePort and protocol of spec.ports[0]; give it another nodePort`},
		{"several ports, one without a name", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Port: 81}), `spec.ports[1].name: is missing: a Service with several ports needs a name for each; give it a name`},
		{"same name twice", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "a", Port: 81}), `spec.ports[1].name "a": is the name of spec.ports[0] too; give it another name`},
		{"clusterIP that is none", clusterIPs("10.96.0.256"), `spec.clusterIPs[0] "10.96.0.256": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"clusterIP with leading zeros", clusterIPs("10.096.0.1"), `spec.clusterIPs[0] "10.096.0.1": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"IPv4-mapped clusterIP", clusterIPs("::ffff:10.96.0.1"), `spec.clusterIPs[0] "::ffff:10.96.0.1": is an IPv4-mapped IPv6 address; write "10.96.0.1"`},
		{"clusterIP with a zone", clusterIPs("fd00::1%eth0"), `spec.clusterIPs[0] "fd00::1%eth0": has a zone; write "fd00::1"`},
		{"loopback clusterIP", clusterIPs("127.0.0.1"), `spec.clusterIPs[0] "127.0.0.1": is a loopback address; write a unicast address that other nodes can reach`},
		{"link-local clusterIP", clusterIPs("fe80::1"), `spec.clusterIPs[0] "fe80::1": is a link-local address; write a unicast address that other nodes can reach`},
		{"unspecified clusterIP", clusterIPs("::"), `spec.clusterIPs[0] "::": is the unspecified address; write a unicast address that other nodes can reach`},
		{"multicast clusterIP", clusterIPs("224.0.0.1"), `spec.clusterIPs[0] "224.0.0.1": is a multicast address; write a unicast address that other nodes can reach`},
		{"two clusterIPs of a family", clusterIPs("10.96.0.1", "10.96.0.2"), `spec.clusterIPs[1] "10.96.0.2": is a second address of its family; leave one IPv4 and one IPv6 address at most`},
		{"clusterIP unlike clusterIPs", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.11"} }, `spec.clusterIPs[0] "10.96.0.11": differs from spec.clusterIP "10.96.0.10"; write the same address in both`},
		{"externalIP that is none", externalIP("example.com"), `spec.externalIPs[0] "example.com": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"empty externalIP", externalIP(""), `spec.externalIPs[0]: is empty; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"broadcast externalIP", externalIP("255.255.255.255"), `spec.externalIPs[0] "255.255.255.255": is the broadcast address; write a unicast address that other nodes can reach`},
		{"ingress IP that is none", ingress("1.2.3"), `status.loadBalancer.ingress[0].ip "1.2.3": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"unspecified ingress IP", ingress("0.0.0.0"), `status.loadBalancer.ingress[0].ip "0.0.0.0": is the unspecified address; write a unicast address that other nodes can reach`},
		{"ingress IP of metadata", ingress("169.254.169.254"), `status.loadBalancer.ingress[0].ip "169.254.169.254": is a cloud's metadata address; write a unicast address that other nodes can reach`},
		{"ingress IP of metadata in IPv6", ingress("fd00:ec2::254"), `status.loadBalancer.ingress[0].ip "fd00:ec2::254": is a cloud's metadata address; write a unicast address that other nodes can reach`},
		{"ingress IP of metadata by NAT64", ingress("64:ff9b::a9fe:a9fe"), `status.loadBalancer.ingress[0].ip "64:ff9b::a9fe:a9fe": is a cloud's metadata address; write a unicast address that other nodes can reach`},
		{"ingress IP of loopback by NAT64", ingress("64:ff9b::127.0.0.1"), `status.loadBalancer.ingress[0].ip "64:ff9b::127.0.0.1": is a loopback address; write a unicast address that other nodes can reach`},
		{"externalIP of metadata", externalIP("fd00:ec2::254"), `spec.externalIPs[0] "fd00:ec2::254": is a cloud's metadata address; write a unicast address that other nodes can reach`},
		{"externalIP of metadata by NAT64", externalIP("64:ff9b::a9fe:a9fe"), `spec.externalIPs[0] "64:ff9b::a9fe:a9fe": is a link-local address; write a unicast address that other nodes can reach`},
		{"unknown type", func(s *corev1.Service) { s.Spec.Type = "Headless" }, `spec.type "Headless": is not a type of Service; write ClusterIP, NodePort, LoadBalancer or ExternalName`},
		{"unknown traffic policy", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "local" }, `spec.externalTrafficPolicy "local": is not a traffic policy; write Cluster or Local`},
		{"name with capitals", func(s *corev1.Service) { s.Namespace = "Default" }, `metadata.namespace "Default": is not a name that Kubernetes allows; use lower-case letters, digits and '-', starting and ending with a letter or digit`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := service(tc.alter)
			got, err := Service(svc)
			wantProblems(t, got == nil, err, "Service "+svc.Namespace+"/web: "+tc.want)
		})
	}
}

// wantProblems checks that an object is rejected for exactly these reasons.
func wantProblems(tb testing.TB, rejected bool, err error, want ...string) {
	tb.Helper()
	if !rejected {
		tb.Error("the object is not rejected")
	}
	var got []string
	for _, p := range Problems(err) {
		got = append(got, p.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Error(diff)
	}
}

func TestEverythingWrongWithAServiceIsSaidAtOnce(t *testing.T) {
	got, err := Service(service(clusterIPs("x"), ports(corev1.ServicePort{Port: 0, Protocol: "QUIC"})))
	wantProblems(t, got == nil, err,
		`Service default/web: spec.clusterIPs[0] "x": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`,
		`Service default/web: spec.ports[0].protocol "QUIC": is not a protocol of Services; write TCP, UDP or SCTP`,
		`Service default/web: spec.ports[0].port "0": is out of range; give it a port from 1 to 65535`)
}

func TestNameAndNamespaceAreNeeded(t *testing.T) {
	got, err := Service(service(func(s *corev1.Service) { s.Name, s.Namespace = "", "" }))
	wantProblems(t, got == nil, err,
		"Service /: metadata.name: is missing; write one",
		"Service /: metadata.namespace: is missing; write one")
}
