package lb

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// kubelet is the port of the kubelet on every address of a node.
const kubelet = 10250

// apiService is the Service of the API servers.
var apiService = ServiceName{Namespace: "default", Name: "kubernetes"}

// servers is what the kernel says of servers of this node where a Service claims an
// address of the node. The kernel is asked once for each claim, when it comes.
type servers struct {
	list    func() (map[AddrPort]bool, error) // at which the node listens; nil for none
	had     func(ServiceName, AddrPort) bool  // says what an earlier process granted; nil for none
	answers map[question]string               // why a claim is refused, "" where it is granted

	asked  bool              // for the claims that come together
	listed map[AddrPort]bool // as the kernel says then
	err    error
}

// question is a claim to an address of the node.
type question struct {
	service ServiceName
	kind    FrontendKind
	at      AddrPort
}

// SetServers says how to learn at which addresses and ports the node listens, and which
// Service has a frontend in force since before. It is for the time before the first Apply.
func (st *State) SetServers(list func() (map[AddrPort]bool, error), had func(ServiceName, AddrPort) bool) {
	st.servers.list, st.servers.had = list, had
}

// forget has the next claims ask anew.
func (s *servers) forget() { s.asked, s.listed, s.err = false, nil, nil }

// askNode asks the kernel about the claims of a Service that are new, and forgets those
// that are gone. An answer holds for as long as the claim stands and the node has the address.
func (st *State) askNode(name ServiceName, was, is *Service) {
	if st.servers.list == nil {
		return
	}
	claims := map[question]bool{}
	for q := range is.questions() {
		claims[q] = true
		if _, asked := st.servers.answers[q]; !asked && st.local[q.at.Addr] {
			st.servers.answers[q] = st.answer(q)
		}
	}
	for q := range was.questions() {
		if !claims[q] || !st.local[q.at.Addr] {
			delete(st.servers.answers, q)
		}
	}
}

// questions are the claims of a Service.
func (s *Service) questions() func(yield func(question) bool) {
	return func(yield func(question) bool) {
		if s == nil {
			return
		}
		for _, p := range s.Ports {
			for _, addr := range s.ExternalIPs {
				if !yield(question{s.ServiceName, ExternalIP, AddrPort{addr, p.Port, p.Protocol}}) {
					return
				}
			}
			for _, addr := range s.LoadBalancerIPs {
				if !yield(question{s.ServiceName, LoadBalancerIP, AddrPort{addr, p.Port, p.Protocol}}) {
					return
				}
			}
		}
	}
}

// answer says why the node keeps an address and port from a claim. A server at all
// addresses keeps the primary addresses of the node from load balancers, and no virtual
// address that happens to be here.
func (st *State) answer(q question) string {
	s := &st.servers
	if s.had != nil && s.had(q.service, q.at) || q.kind == LoadBalancerIP && st.externals[q.at.Addr].has(q.service, q.at) {
		return ""
	}
	if !s.asked {
		s.listed, s.err = s.list()
		s.asked = true
	}
	everywhere := AddrPort{unspecified(q.at.Addr), q.at.Port, q.at.Protocol}
	isPrimary := q.at.Addr == st.node.IP4 || q.at.Addr == st.node.IP6
	switch {
	case s.err != nil:
		return "is an address of this node, whose kernel does not list the servers: " + s.err.Error()
	case s.listed[q.at], s.listed[everywhere] && (q.kind == ExternalIP || isPrimary):
		return "has a server of this node, which was there first"
	}
	return ""
}

// ownServer notes that the server at addresses of a load balancer is an endpoint of the
// Service itself.
func (st *State) ownServer(name ServiceName, addr netip.Addr, slice *Slice) {
	for _, p := range slice.Ports {
		q := question{name, LoadBalancerIP, AddrPort{addr, p.Port, p.Protocol}}
		if _, asked := st.servers.answers[q]; asked {
			st.servers.answers[q] = ""
		}
	}
}

// has says whether a Service has an endpoint there.
func (e *external) has(name ServiceName, at AddrPort) bool {
	return e != nil && e.ports[endpointPort{at.Port, at.Protocol}][name] > 0
}

// setAPIServers says where this node reaches its API servers.
func (st *State) setAPIServers(all []AddrPort, dirty map[ServiceName]bool) {
	if all == nil {
		return
	}
	now := map[AddrPort]bool{}
	for _, at := range all {
		now[at] = true
	}
	for _, set := range []map[AddrPort]bool{st.apiServers, now} {
		for at := range set {
			if e := st.externals[at.Addr]; e != nil && st.apiServers[at] != now[at] {
				maps.Copy(dirty, e.claimants)
			}
		}
	}
	st.apiServers = now
}

// grantedOf returns the frontends of a Service without those that another owner has.
func (st *State) grantedOf(svc *Service, all []Frontend) []Frontend {
	return slices.DeleteFunc(all, func(f Frontend) bool {
		return (f.Kind == ExternalIP || f.Kind == LoadBalancerIP) && st.refusesAt(svc, f.Kind, f.AddrPort) != ""
	})
}

// refusesAt says why a Service may not have an external IP, or an address of a load
// balancer, at a port; "" where it may.
func (st *State) refusesAt(svc *Service, kind FrontendKind, at AddrPort) string {
	if st.apiServers[at] && !st.isOfAPIServers(svc.ServiceName) {
		return "is where this node reaches its API servers"
	}
	if owner, ok := st.endpointAt(svc, kind, at); ok {
		return "is an endpoint of Service " + owner.String()
	}
	if !st.local[at.Addr] {
		return ""
	}
	if at.Port == kubelet && at.Protocol == TCP {
		return "is the kubelet of this node"
	}
	return st.servers.answers[question{svc.ServiceName, kind, at}]
}

// endpointAt returns another Service of which an address and port is an endpoint that
// keeps it from a claim. Services of one namespace may have endpoints in common. An
// EndpointSlice does not take the address of a load balancer from an older Service: an
// endpoint can be any address. The API servers have no such rival.
func (st *State) endpointAt(svc *Service, kind FrontendKind, at AddrPort) (owner ServiceName, ok bool) {
	e := st.externals[at.Addr]
	if e == nil || len(e.ports) == 0 {
		return owner, false
	}
	others := e.ports[endpointPort{at.Port, at.Protocol}]
	for name := range others {
		shared := name.Namespace == svc.Namespace && others[svc.ServiceName] > 0
		older := kind == LoadBalancerIP && name != apiService && svc.Age.Created != 0 && svc.Age.compare(st.ageOf(name)) < 0
		if name != svc.ServiceName && !shared && !older && (!ok || name.Compare(owner) < 0) {
			owner, ok = name, true
		}
	}
	return owner, ok
}

// ageOf returns the age of a Service, that of the youngest where it is not known.
func (st *State) ageOf(name ServiceName) Age {
	if svc := st.services[name]; svc != nil {
		return svc.Age
	}
	return Age{}
}

// isOfAPIServers says whether all endpoints of a Service are API servers: such a Service
// may be the way to them.
func (st *State) isOfAPIServers(name ServiceName) bool {
	servers := backendsOf(st.byService[apiService])
	own := backendsOf(st.byService[name])
	for at := range own {
		if !servers[at] {
			return false
		}
	}
	return len(own) > 0
}

// backendsOf returns the addresses and ports of all endpoints of slices.
func backendsOf(from []*Slice) map[AddrPort]bool {
	out := map[AddrPort]bool{}
	for _, s := range from {
		for _, p := range s.Ports {
			for i := range s.Endpoints {
				out[AddrPort{s.Endpoints[i].Addr, p.Port, p.Protocol}] = true
			}
		}
	}
	return out
}

// refusedAddresses returns a Problem for every external IP, and every address of a load
// balancer, that a Service may not have.
func (st *State) refusedAddresses() (problems []Problem) {
	for addr, e := range st.externals {
		for name := range e.claimants {
			svc := st.services[name]
			if slices.Contains(svc.LoadBalancerIPs, addr) {
				problems = append(problems, st.refusedPorts(svc, LoadBalancerIP, addr)...)
			}
			if !slices.Contains(svc.ExternalIPs, addr) {
				continue
			}
			if reason := st.refuses(name, addr); reason != "" {
				problems = append(problems, svc.refused(ExternalIP, addr.String(), reason))
			} else {
				problems = append(problems, st.refusedPorts(svc, ExternalIP, addr)...)
			}
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Value, b.Value))
	})
	return problems
}

// refusedPorts does so for the ports of one Service at an address.
func (st *State) refusedPorts(svc *Service, kind FrontendKind, addr netip.Addr) (problems []Problem) {
	for _, p := range svc.Ports {
		at := AddrPort{addr, p.Port, p.Protocol}
		if reason := st.refusesAt(svc, kind, at); reason != "" {
			problems = append(problems, svc.refused(kind, at.String(), reason))
		}
	}
	return problems
}

// refused is the Problem of an address that a Service may not have.
func (s *Service) refused(kind FrontendKind, value, reason string) Problem {
	p := Problem{
		File: s.File, Object: "Service " + s.String(), Field: "spec.externalIPs", Value: value,
		Reason: "is not used: it " + reason, Remedy: "take an address that leads nowhere else",
	}
	switch {
	case kind == LoadBalancerIP:
		p.Field, p.Remedy = "status.loadBalancer.ingress", "have the load balancer take an address that leads nowhere else, or give the Service another port"
	case reason == isOfNode:
		p.Remedy += ", or ask the operator to allow it with --external-ips"
	}
	return p
}
