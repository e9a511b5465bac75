package lb

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// at reads an address and port of TCP.
func at(text string) AddrPort {
	a := netip.MustParseAddrPort(text)
	return AddrPort{a.Addr(), a.Port(), TCP}
}

// sliceAt is a slice with one endpoint.
func sliceAt(service ServiceName, endpoint AddrPort) *Slice {
	return &Slice{SliceName: SliceName{service.Namespace, service.Name + "-" + endpoint.Addr.String()}, Service: service.Name,
		Ports: []SlicePort{{Name: "http", Protocol: endpoint.Protocol, Port: endpoint.Port}}, Endpoints: []Endpoint{{Addr: endpoint.Addr, Pod: "web-1", Ready: true, Serving: true}}}
}

// claimTo is a Service that claims an address and port by one kind of address.
func claimTo(name ServiceName, kind FrontendKind, to AddrPort) *Service {
	s := withExternalIPs(name, "172.16.0.9", "")
	if s.Ports[0].Port, s.Ports[0].Protocol = to.Port, to.Protocol; kind == ExternalIP {
		s.ExternalIPs = []netip.Addr{to.Addr}
	} else {
		s.LoadBalancerIPs = []netip.Addr{to.Addr}
	}
	return s
}

// has says whether a Service has a frontend.
func has(st *State, name ServiceName, to AddrPort) bool {
	return slices.ContainsFunc(st.Frontends(name), func(f Frontend) bool { return f.AddrPort == to })
}

func TestAnAddressAndPortOfAnotherOwnerIsRefused(t *testing.T) {
	const endpoint, kubeletOf, api, server = "is an endpoint of Service victim/web", "is the port of the kubelet", "is where this node reaches its API servers", "has a server of this node, which was there first"
	neighbour := ServiceName{"attacker", "zzz"}
	older := Age{Created: 1}
	for _, tc := range []struct {
		name, to     string
		own, other   string // endpoints of the Service, and of one of its namespace
		age          Age
		external, lb string // why it is refused
	}{
		{name: "an address of no owner", to: "198.51.100.1:80"},
		{name: "an endpoint on this node", to: "192.0.2.1:6443", external: endpoint, lb: endpoint},
		{name: "another port of it", to: "192.0.2.1:80"},
		{name: "an endpoint on another node", to: "192.0.2.2:6443", external: endpoint, lb: endpoint},
		{name: "one that the Service says it has, too", to: "192.0.2.1:6443", own: "192.0.2.1:6443", external: endpoint, lb: endpoint},
		{name: "one that an older Service wants", to: "192.0.2.1:6443", age: older, external: endpoint},
		{name: "an endpoint of its own", to: "192.0.2.1:8080", own: "192.0.2.1:8080"},
		{name: "one that two Services of a namespace have", to: "192.0.2.1:8080", own: "192.0.2.1:8080", other: "192.0.2.1:8080"},
		{name: "an endpoint of a neighbour", to: "192.0.2.1:8080", other: "192.0.2.1:8080", external: "is an endpoint of Service attacker/zzz", lb: "is an endpoint of Service attacker/zzz"},
		{name: "the kubelet", to: "192.0.2.1:10250", age: older, external: kubeletOf, lb: kubeletOf},
		{name: "the kubelet's port elsewhere", to: "198.51.100.1:10250", external: kubeletOf},
		{name: "the kubelet's port where it is allowed", to: "203.0.113.1:10250"},
		{name: "an endpoint that is no Pod", to: "192.0.2.9:6443", external: endpoint},
		{name: "an API server at a virtual address", to: "198.51.100.9:6443", age: older, external: api, lb: api},
		{name: "for the API servers", to: "198.51.100.9:6443", own: "192.0.2.3:6443"},
		{name: "an endpoint of the API servers", to: "192.0.2.3:6443", age: older, external: "is an endpoint of Service default/kubernetes", lb: "is an endpoint of Service default/kubernetes"},
		{name: "a server of the node", to: "192.0.2.1:22", external: server, lb: server},
		{name: "a server at all addresses", to: "192.0.2.1:23", external: server, lb: server},
		{name: "a server at all addresses, and a virtual address that is here", to: "192.0.2.100:23", external: server},
		{name: "a server at all addresses, elsewhere", to: "198.51.100.1:23"},
		{name: "a server that is an endpoint of its own", to: "192.0.2.1:22", own: "192.0.2.1:22"},
	} {
		for kind, want := range map[FrontendKind]string{ExternalIP: tc.external, LoadBalancerIP: tc.lb} {
			t.Run(tc.name+", "+kind.String(), func(t *testing.T) {
				st, to := NewState(), at(tc.to)
				st.SetExternalIPs(ExternalIPs{Allowed: prefixes("192.0.2.0/24 203.0.113.0/24")})
				st.SetLocal(map[netip.Addr]bool{at("192.0.2.1:1").Addr: true, at("192.0.2.100:1").Addr: true})
				st.SetServers(func() (map[AddrPort]bool, error) {
					return map[AddrPort]bool{at("192.0.2.1:22"): true, at("0.0.0.0:23"): true}, nil
				}, nil)
				u := Update{APIServers: []AddrPort{at("198.51.100.9:6443")}, Node: &Node{Name: "node-1", IP4: at("192.0.2.1:1").Addr},
					Services: map[ServiceName]*Service{attacker: claimTo(attacker, kind, to), victim: withExternalIPs(victim, "172.16.0.1", "")}, Slices: map[SliceName]*Slice{}}
				u.Services[attacker].Age, u.Services[victim].Age = tc.age, Age{Created: 2}
				add := func(name ServiceName, where string) {
					if where != "" {
						s := sliceAt(name, at(where))
						u.Slices[s.SliceName] = s
					}
				}
				add(victim, "192.0.2.1:6443")
				add(victim, "192.0.2.2:6443")
				add(victim, "192.0.2.9:6443")
				u.Slices[sliceAt(victim, at("192.0.2.9:6443")).SliceName].Endpoints[0].Pod = ""
				add(apiService, "192.0.2.3:6443")
				add(attacker, tc.own)
				add(neighbour, tc.other)
				st.Apply(u)
				mustDiff(t, want == "", has(st, attacker, to))
				problems := st.Problems()
				if want == "" {
					mustDiff(t, []Problem(nil), problems)
					return
				}
				field := map[FrontendKind]string{ExternalIP: "spec.externalIPs", LoadBalancerIP: "status.loadBalancer.ingress"}[kind]
				if len(problems) != 1 || problems[0].Reason != "is not used: it "+want || problems[0].Field != field || problems[0].Value != to.String() || !strings.Contains(problems[0].Remedy, "leads nowhere else") || strings.HasPrefix(problems[0].Remedy, "stop that server") != (want == server) {
					t.Errorf("the problems are %v", problems)
				}
			})
		}
	}
}

// An address of the API servers is for Services that lead to them.
func TestTheAddressOfTheAPIServersIsForServicesThatLeadThere(t *testing.T) {
	vip, six := at("198.51.100.9:6443"), at("[2001:db8::9]:6443")
	first, second, own := at("192.0.2.3:6443"), at("192.0.2.4:6443"), at("10.0.0.1:6443")
	waiting := func(s *Slice) *Slice {
		s.Endpoints[0].Ready = false
		return s
	}
	for _, tc := range []struct {
		name    string
		service ServiceName
		slices  []*Slice
		inForce bool
		want    bool
	}{
		{"no endpoint", attacker, nil, false, false},
		{"no endpoint, in force", attacker, nil, true, false},
		{"in kube-system", ServiceName{"kube-system", "api"}, []*Slice{sliceAt(ServiceName{"kube-system", "api"}, own)}, false, true},
		{"all", attacker, []*Slice{sliceAt(attacker, first), sliceAt(attacker, second)}, false, true},
		{"an endpoint of its own beside", attacker, []*Slice{sliceAt(attacker, first), sliceAt(attacker, own)}, false, false},
		{"the same, in force", attacker, []*Slice{sliceAt(attacker, first), sliceAt(attacker, own)}, true, true},
		{"its own alone, in force", attacker, []*Slice{sliceAt(attacker, own)}, true, false},
		{"one that is not ready is none", attacker, []*Slice{waiting(sliceAt(attacker, first)), sliceAt(attacker, own)}, true, false},
		{"its own is not ready", attacker, []*Slice{sliceAt(attacker, first), waiting(sliceAt(attacker, own))}, false, true},
		{"the address itself is none", attacker, []*Slice{sliceAt(attacker, vip)}, true, false},
		{"another family does not count", attacker, []*Slice{sliceAt(attacker, first), sliceAt(attacker, at("[2001:db8::1]:6443"))}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := NewState()
			st.SetServers(func() (map[AddrPort]bool, error) { return nil, nil }, func(ServiceName, AddrPort) bool { return tc.inForce })
			u := Update{APIServers: []AddrPort{vip, six}, Services: map[ServiceName]*Service{tc.service: claimTo(tc.service, LoadBalancerIP, vip)}, Slices: map[SliceName]*Slice{}}
			for _, s := range append(tc.slices, sliceAt(apiService, first), sliceAt(apiService, second)) {
				u.Slices[s.SliceName] = s
			}
			st.Apply(u)
			mustDiff(t, tc.want, has(st, tc.service, vip))
			mustDiff(t, tc.want, len(st.Problems()) == 0)
		})
	}
}

// kernel is what State asks about servers of the node.
type kernel struct {
	asked   int
	servers map[AddrPort]bool
	err     error
	before  map[AddrPort]bool // in force since before
}

func (k *kernel) list() (map[AddrPort]bool, error) { k.asked++; return k.servers, k.err }

func TestAClaimIsDecidedWhenItComes(t *testing.T) {
	ssh, web := at("192.0.2.1:22"), at("192.0.2.1:80")
	begin := func(k *kernel) *State {
		st := NewState()
		st.SetServers(k.list, func(_ ServiceName, a AddrPort) bool { return k.before[a] })
		st.SetLocal(map[netip.Addr]bool{ssh.Addr: true})
		return st
	}
	claims := func(st *State, to AddrPort, timeout int64) {
		svc := claimTo(attacker, ExternalIP, to)
		svc.Age.Created = timeout // another change
		st.Apply(services(svc))
	}
	t.Run("a server that comes later takes nothing away", func(t *testing.T) {
		k := &kernel{}
		st := begin(k)
		claims(st, ssh, 1)
		k.servers = map[AddrPort]bool{ssh: true}
		claims(st, ssh, 2)
		st.SetLocal(map[netip.Addr]bool{ssh.Addr: true, web.Addr.Next(): true})
		mustDiff(t, []any{true, 1}, []any{has(st, attacker, ssh), k.asked})
	})
	t.Run("one that ends gives nothing, before the claim comes anew", func(t *testing.T) {
		k := &kernel{servers: map[AddrPort]bool{ssh: true}}
		st := begin(k)
		claims(st, ssh, 1)
		k.servers = nil
		claims(st, ssh, 2)
		mustDiff(t, false, has(st, attacker, ssh))
		claims(st, web, 3)
		claims(st, ssh, 4)
		mustDiff(t, true, has(st, attacker, ssh))
	})
	t.Run("what an earlier agent granted stays", func(t *testing.T) {
		st := begin(&kernel{servers: map[AddrPort]bool{ssh: true, web: true}, before: map[AddrPort]bool{ssh: true}})
		claims(st, ssh, 1)
		mustDiff(t, true, has(st, attacker, ssh))
		claims(st, web, 1)
		mustDiff(t, false, has(st, attacker, web))
	})
	t.Run("an address that the node gets is a claim that comes", func(t *testing.T) {
		k := &kernel{servers: map[AddrPort]bool{ssh: true}}
		st := begin(k)
		st.SetLocal(nil)
		claims(st, ssh, 1)
		mustDiff(t, []any{true, 0}, []any{has(st, attacker, ssh), k.asked})
		mustDiff(t, "attacker/aaa", names(st.SetLocal(map[netip.Addr]bool{ssh.Addr: true})))
		mustDiff(t, []any{false, 1}, []any{has(st, attacker, ssh), k.asked})
	})
	t.Run("a kernel that says nothing", func(t *testing.T) {
		st := begin(&kernel{err: errors.New("no such file")})
		claims(st, ssh, 1)
		mustDiff(t, false, has(st, attacker, ssh))
		mustDiff(t, "is not used: it is an address of this node, whose kernel does not list the servers: no such file", st.Problems()[0].Reason)
		mustDiff(t, "load the kernel module tcp_diag and make the claim again, or take an address that leads nowhere else", st.Problems()[0].Remedy)
	})
	t.Run("the kernel is asked once for all that come together", func(t *testing.T) {
		k := &kernel{}
		st, u := begin(k), Update{Services: map[ServiceName]*Service{}}
		for i := range 100 {
			svc := claimTo(ServiceName{"ns", fmt.Sprint("s", i)}, LoadBalancerIP, ssh)
			u.Services[svc.ServiceName] = svc
		}
		st.Apply(u)
		mustDiff(t, 1, k.asked)
	})
	t.Run("the server that comes is an endpoint of the Service", func(t *testing.T) {
		st := begin(&kernel{servers: map[AddrPort]bool{web: true}})
		st.Apply(services(claimTo(attacker, ExternalIP, web)))
		mustDiff(t, false, has(st, attacker, web))
		mustDiff(t, "attacker/aaa", names(st.Apply(withSlices(sliceAt(attacker, web)))))
		mustDiff(t, true, has(st, attacker, web))
	})
}

// After any history no Service has what is another's, and each is named whose frontends
// change.
func TestNoHistoryGrantsWhatIsAnothers(t *testing.T) {
	addrs := []string{"192.0.2.1", "192.0.2.2", "198.51.100.1"}
	random := func(r *rand.Rand) AddrPort {
		return at(fmt.Sprintf("%s:%d", addrs[r.IntN(len(addrs))], []int{80, 6443, 10250}[r.IntN(3)]))
	}
	owners := []ServiceName{{"a", "s0"}, {"a", "s1"}, {"b", "s0"}, apiService}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		st, seen := NewState(), map[ServiceName]string{}
		services, slicesOf := map[ServiceName]*Service{}, map[SliceName]*Slice{}
		var api []AddrPort
		st.SetLocal(map[netip.Addr]bool{at("192.0.2.1:1").Addr: true})
		for range 60 {
			u := Update{Services: map[ServiceName]*Service{}, Slices: map[SliceName]*Slice{}}
			name := owners[r.IntN(len(owners))]
			switch r.IntN(6) {
			case 0:
				u.Services[name] = nil
			case 1:
				api = []AddrPort{random(r)}
				u.APIServers = api
			case 2, 3:
				s := sliceAt(name, random(r))
				s.Name = fmt.Sprint("e", r.IntN(3))
				if r.IntN(3) == 0 {
					s.Endpoints[0].Pod = ""
				}
				u.Slices[s.SliceName] = s
			default:
				u.Services[name] = claimTo(name, []FrontendKind{ExternalIP, LoadBalancerIP}[r.IntN(2)], random(r))
				u.Services[name].Age.Created = int64(r.IntN(3))
			}
			maps.Copy(services, u.Services)
			maps.Copy(slicesOf, u.Slices)
			for _, dirty := range st.Apply(u) {
				seen[dirty] = fmt.Sprint(text(st.Frontends(dirty)))
			}
		}
		fresh := NewState()
		fresh.SetLocal(map[netip.Addr]bool{at("192.0.2.1:1").Addr: true})
		fresh.Apply(Update{Services: services, Slices: slicesOf, APIServers: api})
		mustDiff(t, fresh.Problems(), st.Problems())
		for name := range services {
			if got, want := seen[name], fmt.Sprint(text(fresh.Frontends(name))); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
			for _, f := range fresh.Frontends(name) {
				if why := stolenFrom(services, slicesOf, api, name, f); why != "" {
					t.Errorf("%s has %s, %s", name, f.AddrPort, why)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// stolenFrom says whose a frontend is, "" where it is that of the Service, by looking at everything.
func stolenFrom(services map[ServiceName]*Service, all map[SliceName]*Slice, api []AddrPort, name ServiceName, f Frontend) string {
	if f.Kind == ClusterIP {
		return ""
	}
	if (f.Addr.String() == "192.0.2.1" || f.Kind == ExternalIP) && f.AddrPort.Port == kubelet {
		return "which is the kubelet"
	}
	own, apiOwn := map[AddrPort]bool{}, map[AddrPort]bool{}
	for _, s := range all {
		owner, _ := s.service()
		where := AddrPort{s.Endpoints[0].Addr, s.Ports[0].Port, TCP}
		if owner == name {
			own[where] = true
		}
		if owner == apiService {
			apiOwn[where] = true
		}
	}
	leadsThere := len(own) > 0
	for where := range own {
		leadsThere = leadsThere && (apiOwn[where] || slices.Contains(api, where) && where != f.AddrPort)
	}
	if slices.Contains(api, f.AddrPort) && !leadsThere {
		return "which is an API server"
	}
	for _, s := range all {
		owner, _ := s.service()
		is := AddrPort{s.Endpoints[0].Addr, s.Ports[0].Port, TCP} == f.AddrPort
		shared := owner.Namespace == name.Namespace && own[f.AddrPort]
		var age Age
		if o := services[owner]; o != nil {
			age = o.Age
		}
		weak := f.Kind == LoadBalancerIP && owner != apiService &&
			(!hasPod(all, owner, f.AddrPort) || f.Age.Created != 0 && f.Age.compare(age) < 0)
		if is && owner != name && !shared && !weak {
			return "which is an endpoint of " + owner.String()
		}
	}
	return ""
}

// hasPod says whether an endpoint of a Service is a Pod.
func hasPod(all map[SliceName]*Slice, owner ServiceName, to AddrPort) bool {
	for _, s := range all {
		if name, _ := s.service(); name == owner && s.Endpoints[0].Pod != "" && (AddrPort{s.Endpoints[0].Addr, s.Ports[0].Port, TCP}) == to {
			return true
		}
	}
	return false
}
