package lb

import (
	"fmt"
	"testing"
)

// oneHereOneAway is a slice of each family, and in it one endpoint on this
// node and one elsewhere, as in kube-proxy's packet matrix.
func oneHereOneAway(tb testing.TB) []*Slice {
	return []*Slice{
		mustSlice(tb, "v4", "10.0.0.1 ready on=node-1; 10.0.0.2 ready on=node-2"),
		mustSlice(tb, "v6", "fd00::1 ready on=node-1; fd00::2 ready on=node-2"),
	}
}

// everyKind is a Service with an address of each kind and family.
func everyKind() *Service {
	return &Service{
		ServiceName:     ServiceName{"default", "web"},
		ClusterIPs:      addrs("172.16.0.1 fd01::1"),
		LoadBalancerIPs: addrs("192.0.2.1 2001:db8::1"),
		ExternalIPs:     addrs("198.51.100.1 2001:db8:1::1"),
		Ports:           []ServicePort{{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080}},
	}
}

// text prints one frontend a line: kind, address, and what internal and
// external clients reach.
func text(all []Frontend) []string {
	var lines []string
	for _, f := range all {
		lines = append(lines, fmt.Sprintf("%s %s in[%s] out[%s]", f.Kind, f.AddrPort, viewText(f.Views[Internal]), viewText(f.Views[External])))
	}
	return lines
}

func viewText(v View) string {
	if v.NoLocal {
		return "no-local"
	}
	return hosts(v.Backends)
}

// The packet matrix of kube-proxy's TestInternalExternalMasquerade without its
// masquerading: who reaches which endpoints.
func TestFrontendsFollowTheTrafficPolicies(t *testing.T) {
	const (
		all4, loc4 = "10.0.0.1 10.0.0.2", "10.0.0.1"
		all6, loc6 = "fd00::1 fd00::2", "fd00::1"
	)
	for _, tc := range []struct {
		name                                         string
		internal, external                           TrafficPolicy
		clusterIP4, clusterIP6, external4, external6 string // "" means all
	}{
		{name: "iTP Cluster, eTP Cluster: everyone reaches everything"},
		{name: "eTP Local: clients elsewhere reach local endpoints, clients here take the short circuit",
			external: PolicyLocal, external4: loc4, external6: loc6},
		{name: "iTP Local: clients of the ClusterIP reach local endpoints, the rest is as ever",
			internal: PolicyLocal, clusterIP4: loc4, clusterIP6: loc6},
		{name: "iTP Local, eTP Local: each binds its own clients",
			internal: PolicyLocal, external: PolicyLocal, clusterIP4: loc4, clusterIP6: loc6, external4: loc4, external6: loc6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := everyKind()
			svc.InternalPolicy, svc.ExternalPolicy = tc.internal, tc.external
			c4, c6 := or(tc.clusterIP4, all4), or(tc.clusterIP6, all6)
			e4, e6 := or(tc.external4, all4), or(tc.external6, all6)
			mustDiff(t, []string{
				"NodePort 0.0.0.0:30080/TCP in[" + all4 + "] out[" + e4 + "]",
				"ClusterIP 172.16.0.1:80/TCP in[" + c4 + "] out[" + c4 + "]",
				"LoadBalancer 192.0.2.1:80/TCP in[" + all4 + "] out[" + e4 + "]",
				"ExternalIP 198.51.100.1:80/TCP in[" + all4 + "] out[" + e4 + "]",
				"NodePort [::]:30080/TCP in[" + all6 + "] out[" + e6 + "]",
				"LoadBalancer [2001:db8::1]:80/TCP in[" + all6 + "] out[" + e6 + "]",
				"ExternalIP [2001:db8:1::1]:80/TCP in[" + all6 + "] out[" + e6 + "]",
				"ClusterIP [fd01::1]:80/TCP in[" + c6 + "] out[" + c6 + "]",
			}, text(Frontends(svc, oneHereOneAway(t), here)))
		})
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestFrontendsWithoutLocalEndpoints(t *testing.T) {
	svc := &Service{
		ClusterIPs: addrs("172.16.0.1"), InternalPolicy: PolicyLocal, ExternalPolicy: PolicyLocal,
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080}},
	}
	for _, tc := range []struct {
		name, endpoints, clusterIP, nodePortIn, nodePortOut string
	}{
		{"no endpoints anywhere: none, and the policy is not to blame", "", "", "", ""},
		{"only unready endpoints: none", "10.0.0.2 unready on=node-2", "", "", ""},
		{"ready ones elsewhere: no local one", "10.0.0.2 ready on=node-2", "no-local", "10.0.0.2", "no-local"},
		{"terminating ones elsewhere: no local one", "10.0.0.2 serving terminating on=node-2", "no-local", "10.0.0.2", "no-local"},
		{"a terminating one here: it is used", "10.0.0.2 ready on=node-2; 10.0.0.1 serving terminating on=node-1",
			"10.0.0.1", "10.0.0.2", "10.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustDiff(t, []string{
				"NodePort 0.0.0.0:30080/TCP in[" + tc.nodePortIn + "] out[" + tc.nodePortOut + "]",
				"ClusterIP 172.16.0.1:80/TCP in[" + tc.clusterIP + "] out[" + tc.clusterIP + "]",
			}, text(Frontends(svc, []*Slice{mustSlice(t, "a", tc.endpoints)}, here)))
		})
	}
}

func TestFrontendsOfInternalOnlyLocalService(t *testing.T) {
	svc := &Service{
		ClusterIPs: addrs("172.16.0.1"), InternalPolicy: PolicyLocal, ExternalPolicy: PolicyLocal,
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
	}
	away := []*Slice{mustSlice(t, "a", "10.0.0.2 ready on=node-2")}
	mustDiff(t, []string{"ClusterIP 172.16.0.1:80/TCP in[10.0.0.1] out[10.0.0.1]"}, text(Frontends(svc, oneHereOneAway(t), here)))
	mustDiff(t, []string{"ClusterIP 172.16.0.1:80/TCP in[no-local] out[no-local]"}, text(Frontends(svc, away, here)))
}

func TestFrontendsAddresses(t *testing.T) {
	two := []ServicePort{{Name: "http", Protocol: TCP, Port: 80}, {Name: "dns", Protocol: UDP, Port: 80, NodePort: 30053}}
	for _, tc := range []struct {
		name string
		svc  Service
		want []string
	}{
		{"a single-stack Service has a NodePort, and endpoints, of its family only",
			Service{ClusterIPs: addrs("fd01::1"), Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80, NodePort: 30080}}},
			[]string{"NodePort [::]:30080/TCP in[fd00::1 fd00::2] out[fd00::1 fd00::2]", "ClusterIP [fd01::1]:80/TCP in[fd00::1 fd00::2] out[fd00::1 fd00::2]"}},
		{"addresses of a family without a ClusterIP are not served",
			Service{ClusterIPs: addrs("172.16.0.1"), LoadBalancerIPs: addrs("2001:db8::1"), ExternalIPs: addrs("2001:db8::2"), Ports: two[:1]},
			[]string{"ClusterIP 172.16.0.1:80/TCP in[10.0.0.1 10.0.0.2] out[10.0.0.1 10.0.0.2]"}},
		{"an address that is both load-balancer IP and external IP is one frontend",
			Service{ClusterIPs: addrs("172.16.0.1"), LoadBalancerIPs: addrs("192.0.2.1"), ExternalIPs: addrs("192.0.2.1 192.0.2.1"), Ports: two[:1]},
			[]string{"ClusterIP 172.16.0.1:80/TCP in[10.0.0.1 10.0.0.2] out[10.0.0.1 10.0.0.2]",
				"LoadBalancer 192.0.2.1:80/TCP in[10.0.0.1 10.0.0.2] out[10.0.0.1 10.0.0.2]"}},
		{"ports are apart by protocol, and only the one that has a NodePort gets one",
			Service{ClusterIPs: addrs("172.16.0.1"), Ports: two},
			[]string{"NodePort 0.0.0.0:30053/UDP in[] out[]",
				"ClusterIP 172.16.0.1:80/TCP in[10.0.0.1 10.0.0.2] out[10.0.0.1 10.0.0.2]", "ClusterIP 172.16.0.1:80/UDP in[] out[]"}},
		{"no ports, no frontends", Service{ClusterIPs: addrs("172.16.0.1")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustDiff(t, tc.want, text(Frontends(&tc.svc, oneHereOneAway(t), here)))
		})
	}
}

func TestFrontendsNameTheirServicePort(t *testing.T) {
	for _, f := range Frontends(everyKind(), nil, here) {
		mustDiff(t, "http", f.Port)
	}
}

func TestViewsWithEqualBackendsShareMemory(t *testing.T) {
	svc := everyKind()
	svc.ClusterIPs, svc.ExternalPolicy = svc.ClusterIPs[:1], PolicyLocal
	all := Frontends(svc, []*Slice{mustSlice(t, "a", "10.0.0.1 ready on=node-1")}, here)
	first := &all[0].Views[Internal].Backends[0]
	for _, f := range all {
		if &f.Views[Internal].Backends[0] != first || &f.Views[External].Backends[0] != first {
			t.Errorf("%s has backends of its own", f.AddrPort)
		}
	}
}

func TestMembersOfFrontends(t *testing.T) {
	for _, tc := range []struct {
		name, endpoints string
		tcp, udp        string
	}{
		{"ready", "10.0.0.1 ready; 10.0.0.2 ready", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"one is unready: datagrams move", "10.0.0.1 ready; 10.0.0.2 unready", "10.0.0.1 10.0.0.2", "10.0.0.1"},
		{"one terminates, the others are unready", "10.0.0.1 unready; 10.0.0.2 serving terminating; 10.0.0.3 terminating", "10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.2"},
		{"all are unready: datagrams stay", "10.0.0.1 unready; 10.0.0.2 unready", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"the last one terminates and serves no more", "10.0.0.1 terminating", "10.0.0.1", "10.0.0.1"},
		{"published though it is not ready", "10.0.0.1 published; 10.0.0.2 ready; 10.0.0.3 unready", "10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.1 10.0.0.2"},
		{"none", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for protocol, want := range map[Protocol]string{TCP: tc.tcp, UDP: tc.udp} {
				svc := &Service{ClusterIPs: addrs("172.16.0.1"), Ports: []ServicePort{{Name: "http", Protocol: protocol, Port: 80}}}
				slice := mustSlice(t, "a", tc.endpoints)
				slice.Ports[0].Protocol = protocol
				mustDiff(t, want, hosts(Frontends(svc, []*Slice{slice}, here)[0].Members))
			}
		})
	}
}
