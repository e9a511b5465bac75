package lb

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// kubelet is the port of the kubelet on every address of a node.
const kubelet = 10250

// apiService is the Service of the API servers.
var apiService = ServiceName{Namespace: "default", Name: "kubernetes"}

// servers is what the kernel says of servers of this node where a Service claims an
// address of the node. The kernel is asked once for each claim, when it comes.
type servers struct {
	list    func() (map[AddrPort]bool, error) // at which the node listens; nil for none
	inForce func(ServiceName, AddrPort) bool  // which Service has a frontend, also of an earlier process; nil for none
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
func (st *State) SetServers(list func() (map[AddrPort]bool, error), inForce func(ServiceName, AddrPort) bool) {
	st.servers.list, st.servers.inForce = list, inForce
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

// The reasons of a refusal that have a remedy of their own.
const (
	isServer   = "has a server of this node, which was there first"
	isUnlisted = "is an address of this node, whose kernel does not list the servers: "
)

// answer says why the node keeps an address and port from a claim. A server at all
// addresses keeps the primary addresses of the node from load balancers, and no virtual
// address that happens to be here.
func (st *State) answer(q question) string {
	s := &st.servers
	if st.isInForce(q.service, q.at) || st.externals[q.at.Addr].has(q.service, q.at) {
		return ""
	}
	if !s.asked {
		s.listed, s.err = s.list()
		s.asked = true
	}
	everywhere := AddrPort{unspecified(q.at.Addr), q.at.Port, q.at.Protocol}
	isPrimary := q.at.Addr == st.node.IP4 || q.at.Addr == st.node.IP6
	switch {
	case s.err != nil && q.kind == LoadBalancerIP:
		return "" // whoever writes the status is trusted more
	case s.err != nil:
		return isUnlisted + s.err.Error()
	case s.listed[q.at], s.listed[everywhere] && (q.kind == ExternalIP || isPrimary):
		return isServer
	}
	return ""
}

// isInForce says whether a Service has a frontend in force, also of an earlier process.
func (st *State) isInForce(name ServiceName, at AddrPort) bool {
	return st.servers.inForce != nil && st.servers.inForce(name, at)
}

// ownServer notes that the server at an address that a Service claims is an endpoint of the
// Service itself.
func (st *State) ownServer(name ServiceName, addr netip.Addr, slice *Slice) {
	for _, p := range slice.Ports {
		for _, kind := range []FrontendKind{ExternalIP, LoadBalancerIP} {
			q := question{name, kind, AddrPort{addr, p.Port, p.Protocol}}
			if _, asked := st.servers.answers[q]; asked {
				st.servers.answers[q] = ""
			}
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
	if maps.Equal(st.apiServers, now) {
		return
	}
	for _, set := range []map[AddrPort]bool{st.apiServers, now} {
		for at := range set {
			if e := st.externals[at.Addr]; e != nil {
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
	if st.apiServers[at] && !st.leadsToAPIServers(svc, at) {
		return "is where this node reaches its API servers"
	}
	if owner, ok := st.endpointAt(svc, kind, at); ok {
		return "is an endpoint of Service " + owner.String()
	}
	allowed := slices.ContainsFunc(st.externalIPs.Allowed, func(p netip.Prefix) bool { return p.Contains(at.Addr) })
	if at.Port == kubelet && at.Protocol == TCP && (st.local[at.Addr] || kind == ExternalIP && !allowed) {
		return "is the port of the kubelet"
	}
	if !st.local[at.Addr] {
		return ""
	}
	return st.servers.answers[question{svc.ServiceName, kind, at}]
}

// endpointAt returns another Service of which an address and port is an endpoint that
// keeps it from a claim. Services of one namespace may have endpoints in common. An
// EndpointSlice can name any address: it takes that of a load balancer only for a Pod, and not
// from an older Service. The API servers have no such rival.
func (st *State) endpointAt(svc *Service, kind FrontendKind, at AddrPort) (owner ServiceName, ok bool) {
	e := st.externals[at.Addr]
	if e == nil || len(e.ports) == 0 {
		return owner, false
	}
	others := e.ports[endpointPort{at.Port, at.Protocol}]
	for name := range others {
		shared := name.Namespace == svc.Namespace && others[svc.ServiceName] > 0
		weak := kind == LoadBalancerIP && name != apiService &&
			(e.pods[endpointPort{at.Port, at.Protocol}][name] == 0 || svc.Age.Created != 0 && svc.Age.compare(st.ageOf(name)) < 0)
		if name != svc.ServiceName && !shared && !weak && (!ok || name.Compare(owner) < 0) {
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

// leadsToAPIServers says whether a Service may be the way to the API servers: tenants have no part
// in its namespace, or all endpoints that are ready are API servers. Of one that is in force one of
// them has to be: another may have ended, and the agent hears of that by this way.
func (st *State) leadsToAPIServers(svc *Service, at AddrPort) bool {
	if svc.Namespace == "kube-system" {
		return true
	}
	servers, all, some := st.endpoints(apiService, at.Addr.Is4()), true, false
	for b := range st.endpoints(svc.ServiceName, at.Addr.Is4()) {
		is := servers[b] || st.apiServers[b] && b != at
		all, some = all && is, some || is
	}
	return some && (all || st.isInForce(svc.ServiceName, at))
}

// endpoints returns the addresses and ports of the endpoints of a Service that are ready, of one
// family.
func (st *State) endpoints(name ServiceName, is4 bool) map[AddrPort]bool {
	out := map[AddrPort]bool{}
	for _, s := range st.byService[name] {
		for _, p := range s.Ports {
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; e.Ready && e.Addr.Is4() == is4 {
					out[AddrPort{e.Addr, p.Port, p.Protocol}] = true
				}
			}
		}
	}
	return out
}

// refusedAddresses returns a Problem for every external IP, and every address of a load
// balancer, that a Service may not have. It looks only at Services that have changed since.
func (st *State) refusedAddresses() (problems []Problem) {
	for name := range st.changedClaims {
		if all := st.refusedOf(st.services[name]); len(all) > 0 {
			st.refused[name] = all
		} else {
			delete(st.refused, name)
		}
	}
	clear(st.changedClaims)
	for name, all := range st.refused {
		for _, p := range all {
			p.File = st.File(name)
			problems = append(problems, p)
		}
	}
	SortProblems(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Value, b.Value))
	})
	return problems
}

// refusedOf does so for one Service, nil for none.
func (st *State) refusedOf(svc *Service) (problems []Problem) {
	if svc == nil {
		return nil
	}
	for _, addr := range svc.ExternalIPs {
		if reason := st.refuses(svc.ServiceName, addr); reason != "" {
			problems = append(problems, svc.refused(ExternalIP, addr.String(), reason))
		} else {
			problems = append(problems, st.refusedPorts(svc, ExternalIP, addr)...)
		}
	}
	for _, addr := range svc.LoadBalancerIPs {
		problems = append(problems, st.refusedPorts(svc, LoadBalancerIP, addr)...)
	}
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
		Object: "Service " + s.String(), Field: "spec.externalIPs", Value: value,
		Reason: "is not used: it " + reason, Remedy: "take an address that leads nowhere else",
	}
	if kind == LoadBalancerIP {
		p.Field, p.Remedy = "status.loadBalancer.ingress", "have the load balancer take an address that leads nowhere else, or give the Service another port"
	}
	switch {
	case reason == isServer:
		p.Remedy = "stop that server and make the claim again, or " + p.Remedy
	case strings.HasPrefix(reason, isUnlisted):
		p.Remedy = "load the kernel module tcp_diag and make the claim again, or " + p.Remedy
	case reason == isOfNode:
		p.Remedy += ", or ask the operator to allow it with --external-ips"
	}
	return p
}
