package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

var victim, attacker = ServiceName{Namespace: "victim", Name: "web"}, ServiceName{Namespace: "attacker", Name: "aaa"}

// withExternalIPs is a Service that asks for external IPs.
func withExternalIPs(name ServiceName, clusterIP, external string) *Service {
	return &Service{ServiceName: name, ClusterIPs: addrs(clusterIP), ExternalIPs: addrs(external),
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}}}
}

func TestAnExternalIPThatIsSomebodyElsesIsRefused(t *testing.T) {
	slice := &Slice{SliceName: SliceName{Namespace: "victim", Name: "web-1"}, Service: "web",
		Ports: []SlicePort{{Name: "http", Protocol: TCP, Port: 8080}}, Endpoints: mustEndpoints(t, "10.0.0.1 ready on=node-1; 10.244.2.10 ready on=node-1")}
	for _, tc := range []struct {
		name, asks string
		operator   ExternalIPs
		want       string // "" where it is granted
	}{
		{"an address of nobody", "198.51.100.1", ExternalIPs{}, ""},
		{"a ClusterIP", "172.16.0.1", ExternalIPs{}, "is the ClusterIP of Service victim/web"},
		{"a ClusterIP, whatever the operator allows", "172.16.0.1", ExternalIPs{Allowed: prefixes("0.0.0.0/0")}, "is the ClusterIP of Service victim/web"},
		{"an address that ClusterIPs are taken from", "10.96.3.4", ExternalIPs{}, "is within the service CIDR 10.96.0.0/16"},
		{"an endpoint of another Service", "10.0.0.1", ExternalIPs{}, "is the address of an endpoint of Service victim/web"},
		{"an endpoint, if the operator allows it", "10.0.0.1", ExternalIPs{Allowed: prefixes("10.0.0.0/24")}, ""},
		{"an address of this node", "192.0.2.1", ExternalIPs{}, ""},
		{"an address of this node, off nodes only", "192.0.2.1", ExternalIPs{OffNode: true}, "is an address of this node, which --external-ips off-node refuses"},
		{"an address of a pod", "10.244.2.50", ExternalIPs{}, "is within the pod range 10.244.2.0/24 of Node b"},
		{"an address of a pod, IPv6", "fd00:244:2::50", ExternalIPs{}, "is within the pod range fd00:244:2::/64 of Node b"},
		{"a pod range within another one", "10.244.3.50", ExternalIPs{}, "is within the pod range 10.244.3.0/25 of Node c"},
		{"beside a pod range within another one", "10.244.3.200", ExternalIPs{}, "is within the pod range 10.244.3.0/24 of Node b"},
		{"a pod range of two Nodes", "10.244.4.1", ExternalIPs{}, "is within the pod range 10.244.4.0/24 of Node b"},
		{"beside all pod ranges", "10.244.5.1", ExternalIPs{}, ""},
		{"an address of a pod, if the operator allows it", "10.244.2.50", ExternalIPs{Allowed: prefixes("10.244.0.0/16")}, ""},
		{"an address of a pod, off nodes only", "10.244.2.50", ExternalIPs{OffNode: true}, "is within the pod range 10.244.2.0/24 of Node b"},
		{"an endpoint within a pod range", "10.244.2.10", ExternalIPs{}, "is the address of an endpoint of Service victim/web"},
		{"an address of this node within a pod range", "10.244.2.1", ExternalIPs{}, ""},
		{"an address of this node within a pod range, off nodes only", "10.244.2.1", ExternalIPs{OffNode: true}, "is an address of this node, which --external-ips off-node refuses"},
		{"an address of this node that the operator allows", "192.0.2.1", ExternalIPs{OffNode: true, Allowed: prefixes("192.0.2.0/24")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := NewState()
			st.SetExternalIPs(tc.operator)
			st.SetLocal(map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("10.244.2.1"): true})
			st.Apply(Update{
				ServiceCIDRs: prefixes("10.96.0.0/16"), Slices: map[SliceName]*Slice{slice.SliceName: slice},
				PodRanges: map[string][]netip.Prefix{
					"c": prefixes("10.244.4.0/24 10.244.3.0/25"), "b": prefixes("10.244.2.0/24 10.244.3.0/24 10.244.4.0/24 fd00:244:2::/64")},
				Services: map[ServiceName]*Service{
					victim: withExternalIPs(victim, "172.16.0.1", ""), attacker: withExternalIPs(attacker, "172.16.0.2", tc.asks)},
			})
			wanted, problems := 2, []Problem(nil)
			if tc.want != "" {
				remedy := "take an address that leads nowhere else"
				if strings.Contains(tc.want, "--external-ips") {
					remedy += ", or ask the operator to allow it with --external-ips"
				}
				wanted, problems = 1, []Problem{{Object: "Service attacker/aaa", Field: "spec.externalIPs", Value: tc.asks,
					Reason: "is not used: it " + tc.want, Remedy: remedy}}
			}
			mustDiff(t, wanted, len(st.Frontends(attacker)))
			mustDiff(t, problems, st.Problems())
		})
	}
}

func TestAServiceMayHaveItsOwnEndpointAsExternalIP(t *testing.T) {
	st := NewState()
	slice := &Slice{SliceName: SliceName{Namespace: "attacker", Name: "x"}, Service: "aaa", Endpoints: mustEndpoints(t, "10.0.0.1 ready")}
	st.Apply(Update{Slices: map[SliceName]*Slice{slice.SliceName: slice},
		Services: map[ServiceName]*Service{attacker: withExternalIPs(attacker, "172.16.0.2", "10.0.0.1")}})
	mustDiff(t, 2, len(st.Frontends(attacker)))
}

// What becomes of external IPs is the same in whatever order everything comes, and
// a Service is named whenever its frontends change.
func TestExternalIPsDoNotDependOnTheOrderOfArrival(t *testing.T) {
	pool := []string{"172.16.0.0", "172.16.0.1", "172.16.0.2", "10.0.0.1", "10.0.0.2", "192.0.2.1"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		st, services, slices := NewState(), map[ServiceName]*Service{}, map[SliceName]*Slice{}
		seen := map[ServiceName]string{}
		follow := func(dirty []ServiceName) {
			for _, name := range dirty {
				seen[name] = fmt.Sprint(text(st.Frontends(name)))
			}
		}
		cidrs, local, ranges := []netip.Prefix{}, map[netip.Addr]bool{}, map[string][]netip.Prefix{}
		for range 60 {
			u := Update{Services: map[ServiceName]*Service{}, Slices: map[SliceName]*Slice{}}
			i := r.IntN(3)
			name := ServiceName{Namespace: "ns", Name: fmt.Sprint("s", i)}
			switch r.IntN(6) {
			case 0:
				u.Services[name] = nil
			case 1:
				s := SliceName{Namespace: "ns", Name: fmt.Sprint("e", r.IntN(3))}
				u.Slices[s] = &Slice{SliceName: s, Service: name.Name, Ports: []SlicePort{{Name: "http", Protocol: TCP, Port: 80}},
					Endpoints: []Endpoint{{Addr: addrs(pool[r.IntN(len(pool))])[0], Ready: true, Serving: true}}}
			case 2:
				local = map[netip.Addr]bool{addrs(pool[r.IntN(len(pool))])[0]: true}
				follow(st.SetLocal(local))
			case 3:
				cidrs = prefixes([]string{"", "172.16.0.0/31"}[r.IntN(2)])
				u.ServiceCIDRs = append([]netip.Prefix{}, cidrs...)
			case 4:
				node := fmt.Sprint("n", i)
				ranges[node] = prefixes([]string{"", "10.0.0.0/31", "10.0.0.2/31", "10.0.0.0/24 10.0.0.2/31"}[r.IntN(4)])
				u.PodRanges = map[string][]netip.Prefix{node: ranges[node]}
			default:
				u.Services[name] = withExternalIPs(name, fmt.Sprint("172.16.0.", i), pool[r.IntN(len(pool))]+" "+pool[r.IntN(len(pool))])
			}
			for n, s := range u.Services {
				services[n] = s
			}
			for n, s := range u.Slices {
				slices[n] = s
			}
			follow(st.Apply(u))
		}
		fresh := NewState()
		fresh.SetLocal(local)
		fresh.Apply(Update{Services: services, Slices: slices, ServiceCIDRs: append([]netip.Prefix{}, cidrs...), PodRanges: ranges})
		mustDiff(t, fresh.Problems(), st.Problems())
		for name := range services {
			if seen[name] == "" { // no change was reported, so it has none
				seen[name] = fmt.Sprint(text(nil))
			}
			if got, want := seen[name], fmt.Sprint(text(fresh.Frontends(name))); got != want {
				t.Fatalf("seed %d: %s is %s, want %s", seed, name, got, want)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
