package lb

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// ExternalIPs is what the operator decides about external IPs. The zero value is
// that of kube-proxy: they may be addresses of this node.
type ExternalIPs struct {
	Allowed []netip.Prefix // may be addresses of this node, of endpoints and of pods
	OffNode bool           // may not be addresses of this node, unless allowed
}

// external is an address that Services ask for as external IP, or have in the status
// of a load balancer, and what else it is. A Service may name any address, so the
// address is not its own where another owner has it already.
type external struct {
	fresh      bool // lookUp has yet to say what it is
	claimants  map[ServiceName]bool
	clusterIPs map[ServiceName]int // Services of which it is a ClusterIP
	endpoints  map[ServiceName]int // Services of which it is an endpoint, and how often
	ports      portOwners          // the same by port
	pods       portOwners          // of these, the endpoints that are Pods
}

// portOwners are the Services that have an endpoint at a port, and how often.
type portOwners map[endpointPort]map[ServiceName]int

// count notes that a Service has n endpoints more.
func (o *portOwners) count(at endpointPort, name ServiceName, n int) {
	if *o == nil {
		*o = portOwners{}
	}
	if (*o)[at] == nil {
		(*o)[at] = map[ServiceName]int{}
	}
	if tally((*o)[at], name, n); len((*o)[at]) == 0 {
		delete(*o, at)
	}
}

// endpointPort is where an endpoint serves.
type endpointPort struct {
	port     uint16
	protocol Protocol
}

// SetExternalIPs says what the operator has decided. It is for the time before the
// first Apply.
func (st *State) SetExternalIPs(e ExternalIPs) { st.externalIPs = e }

// SetLocal says which addresses this node has, and returns the sorted names of the
// Services whose Frontends may have changed by it.
func (st *State) SetLocal(local map[netip.Addr]bool) []ServiceName {
	dirty := map[ServiceName]bool{}
	was := st.local
	st.local = local
	for addr, e := range st.externals {
		if was[addr] != local[addr] {
			maps.Copy(dirty, e.claimants)
		}
	}
	for name := range dirty {
		st.askNode(name, st.services[name], st.services[name])
	}
	st.servers.forget()
	maps.Copy(st.changedClaims, dirty)
	return sortedNames(dirty)
}

// setServiceCIDRs says which prefixes ClusterIPs are taken from.
func (st *State) setServiceCIDRs(cidrs []netip.Prefix, dirty map[ServiceName]bool) {
	if cidrs == nil || slices.Equal(cidrs, st.cidrs) {
		return
	}
	st.cidrs = cidrs
	for _, e := range st.externals {
		maps.Copy(dirty, e.claimants)
	}
}

// countService notes that a Service was another one, nil for none.
func (st *State) countService(name ServiceName, was, is *Service, dirty map[ServiceName]bool) {
	st.countAge(name, was, is, dirty)
	if was == nil {
		was = &Service{}
	}
	if is == nil {
		is = &Service{}
	}
	st.countClusterIPs(name, was.ClusterIPs, -1, dirty)
	st.countClusterIPs(name, is.ClusterIPs, 1, dirty)
	for addr := range was.claimed() {
		if e := st.externals[addr]; e != nil && !is.claims(addr) {
			if delete(e.claimants, name); len(e.claimants) == 0 {
				delete(st.externals, addr)
			}
		}
	}
	for addr := range is.claimed() {
		if st.externals[addr] == nil {
			st.externals[addr] = &external{fresh: true, claimants: map[ServiceName]bool{}, clusterIPs: map[ServiceName]int{}, endpoints: map[ServiceName]int{}}
			st.fresh = append(st.fresh, addr)
		}
		st.externals[addr].claimants[name] = true
	}
}

// countAge marks the claims to the endpoints of a Service, which its age decides.
func (st *State) countAge(name ServiceName, was, is *Service, dirty map[ServiceName]bool) {
	if was != nil && is != nil && was.Age == is.Age || len(st.externals) == 0 {
		return
	}
	for _, slice := range st.byService[name] {
		for i := range slice.Endpoints {
			if e := st.externals[slice.Endpoints[i].Addr]; e != nil {
				maps.Copy(dirty, e.claimants)
			}
		}
	}
}

// claimed are the addresses that a Service has by its own word or that of a load balancer.
func (s *Service) claimed() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, all := range [][]netip.Addr{s.ExternalIPs, s.LoadBalancerIPs} {
			for _, addr := range all {
				if !yield(addr) {
					return
				}
			}
		}
	}
}

// claims says whether an address is one of these.
func (s *Service) claims(addr netip.Addr) bool {
	return slices.Contains(s.ExternalIPs, addr) || slices.Contains(s.LoadBalancerIPs, addr)
}

// lookUp finds out what addresses are that no Service asked for until now. Most
// clusters have few of them: an index of everything would cost more than one look
// for all that come together.
func (st *State) lookUp() {
	if len(st.fresh) == 0 {
		return
	}
	fresh, likely := map[netip.Addr]*external{}, uint64(0)
	for _, addr := range st.fresh {
		if e := st.externals[addr]; e != nil {
			e.fresh, fresh[addr] = false, e
			likely |= lastBits(addr)
		}
	}
	st.fresh = nil
	for name, svc := range st.services {
		for _, addr := range svc.ClusterIPs {
			if e := fresh[addr]; e != nil {
				e.clusterIPs[name]++
			}
		}
	}
	for _, slice := range st.slices {
		if slices.ContainsFunc(slice.Endpoints, func(e Endpoint) bool { return lastBits(e.Addr)&likely != 0 }) {
			slice.countAt(fresh, 1)
		}
	}
	for _, r := range st.recalled {
		for _, slice := range r.all {
			slice.countAt(fresh, 1)
		}
	}
}

// lastBits returns one bit of 64 by the end of an address: few addresses are told apart
// from most others without a map.
func lastBits(addr netip.Addr) uint64 {
	bytes := addr.As16()
	return 1 << (bytes[15] & 63)
}

func (st *State) countClusterIPs(name ServiceName, addrs []netip.Addr, n int, dirty map[ServiceName]bool) {
	for _, addr := range addrs {
		if e := st.externals[addr]; e != nil && !e.fresh {
			tally(e.clusterIPs, name, n)
			maps.Copy(dirty, e.claimants)
		}
	}
}

// countEndpoints notes that a slice comes (1) or goes (-1).
func (st *State) countEndpoints(slice *Slice, n int, dirty map[ServiceName]bool) {
	if len(st.externals) == 0 {
		return
	}
	slice.countAt(st.externals, n)
	owner, _ := slice.service()
	for i := range slice.Endpoints {
		addr := slice.Endpoints[i].Addr
		e := st.externals[addr]
		if e == nil {
			continue
		}
		for name := range e.claimants {
			if st.services[name].minds(addr, slice) {
				dirty[name] = true
			}
		}
		if n > 0 && e.claimants[owner] {
			st.ownServer(owner, addr, slice)
		}
	}
	if owner == apiService {
		for at := range st.apiServers {
			if e := st.externals[at.Addr]; e != nil {
				maps.Copy(dirty, e.claimants)
			}
		}
	}
}

// countAt counts the endpoints of a slice that are among some addresses.
func (s *Slice) countAt(all map[netip.Addr]*external, n int) {
	name, _ := s.service()
	for i := range s.Endpoints {
		e := all[s.Endpoints[i].Addr]
		if e == nil {
			continue
		}
		tally(e.endpoints, name, n)
		for _, p := range s.Ports {
			at := endpointPort{p.Port, p.Protocol}
			if e.ports.count(at, name, n); s.Endpoints[i].Pod != "" {
				e.pods.count(at, name, n)
			}
		}
	}
}

// minds says whether what a Service gets of an address depends on endpoints that a slice has there.
func (s *Service) minds(addr netip.Addr, slice *Slice) bool {
	return slices.Contains(s.ExternalIPs, addr) || slices.ContainsFunc(s.Ports, func(p ServicePort) bool { return slice.servesAt(p.Port, p.Protocol) })
}

// servesAt says whether the endpoints of a slice serve at a port.
func (s *Slice) servesAt(port uint16, protocol Protocol) bool {
	return slices.ContainsFunc(s.Ports, func(p SlicePort) bool { return p.Port == port && p.Protocol == protocol })
}

func tally(of map[ServiceName]int, name ServiceName, n int) {
	if of[name] += n; of[name] == 0 {
		delete(of, name)
	}
}

// granted returns a Service without the external IPs that are not its to have.
func (st *State) granted(svc *Service) *Service {
	refused := func(addr netip.Addr) bool { return st.refuses(svc.ServiceName, addr) != "" }
	if !slices.ContainsFunc(svc.ExternalIPs, refused) {
		return svc
	}
	out := *svc
	out.ExternalIPs = slices.DeleteFunc(slices.Clone(svc.ExternalIPs), refused)
	return &out
}

// isOfNode is why --external-ips off-node refuses an address.
const isOfNode = "is an address of this node, which --external-ips off-node refuses"

// refuses says why a Service may not have an external IP at any port, "" where it may.
func (st *State) refuses(name ServiceName, addr netip.Addr) string {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	if i := slices.IndexFunc(st.cidrs, within); i >= 0 {
		return "is within the service CIDR " + st.cidrs[i].String()
	}
	e := st.externals[addr]
	if e == nil {
		return ""
	}
	if owner, ok := firstBut(name, e.clusterIPs); ok {
		return "is the ClusterIP of Service " + owner.String()
	}
	if slices.ContainsFunc(st.externalIPs.Allowed, within) {
		return ""
	}
	if st.local[addr] {
		if st.externalIPs.OffNode {
			return isOfNode
		}
		return ""
	}
	if owner, ok := firstBut(name, e.endpoints); ok && e.endpoints[name] == 0 {
		return "is the address of an endpoint of Service " + owner.String()
	}
	if p, node, ok := st.podRanges.find(addr); ok && e.endpoints[name] == 0 {
		return "is within the pod range " + p.String() + " of Node " + node
	}
	return ""
}

// firstBut returns the first of some Services by name, one of them aside.
func firstBut(aside ServiceName, of map[ServiceName]int) (first ServiceName, ok bool) {
	for _, name := range sortedNames(of) {
		if name != aside {
			return name, true
		}
	}
	return first, false
}

// Problems returns what of the Services cannot be done because of others, or of
// what they ask for in all, in a fixed order.
func (st *State) Problems() []Problem {
	problems := st.refusedAddresses()
	for _, name := range sortedNames(st.oversized) {
		p := st.oversized[name]
		p.File = st.File(name)
		problems = append(problems, p)
	}
	return problems
}
