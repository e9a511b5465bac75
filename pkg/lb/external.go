package lb

import (
	"maps"
	"net/netip"
	"slices"
)

// ExternalIPs is what the operator decides about external IPs. The zero value is
// that of kube-proxy: they may be addresses of this node.
type ExternalIPs struct {
	Allowed []netip.Prefix // may be addresses of this node and of endpoints
	OffNode bool           // may not be addresses of this node, unless allowed
}

// external is an address that Services ask for as external IP, and what else it
// is. Whoever may write a Service may ask for any, so it is not theirs where it
// is somebody else's already.
type external struct {
	claimants  map[ServiceName]bool
	clusterIPs map[ServiceName]int // Services of which it is a ClusterIP
	endpoints  map[ServiceName]int // Services of which it is an endpoint, and how often
}

// SetExternalIPs says what the operator has decided. It is for the time before the
// first Apply.
func (st *State) SetExternalIPs(e ExternalIPs) { st.externalIPs = e }

// SetLocal says which addresses this node has, and returns the sorted names of the
// Services whose Frontends may have changed by it.
func (st *State) SetLocal(local map[netip.Addr]bool) []ServiceName {
	dirty := map[ServiceName]bool{}
	for addr, e := range st.externals {
		if st.local[addr] != local[addr] {
			maps.Copy(dirty, e.claimants)
		}
	}
	st.local = local
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
	if was == nil {
		was = &Service{}
	}
	if is == nil {
		is = &Service{}
	}
	st.countClusterIPs(name, was.ClusterIPs, -1, dirty)
	st.countClusterIPs(name, is.ClusterIPs, 1, dirty)
	for _, addr := range was.ExternalIPs {
		if e := st.externals[addr]; e != nil && !slices.Contains(is.ExternalIPs, addr) {
			if delete(e.claimants, name); len(e.claimants) == 0 {
				delete(st.externals, addr)
			}
		}
	}
	fresh := map[netip.Addr]bool{}
	for _, addr := range is.ExternalIPs {
		if st.externals[addr] == nil {
			st.externals[addr] = &external{claimants: map[ServiceName]bool{}, clusterIPs: map[ServiceName]int{}, endpoints: map[ServiceName]int{}}
			fresh[addr] = true
		}
		st.externals[addr].claimants[name] = true
	}
	if len(fresh) > 0 {
		st.lookUp(fresh)
	}
}

// lookUp finds out what addresses are that were not asked for until now. Most
// clusters have few external IPs: to keep an index of everything for them would
// cost more than to look, once.
func (st *State) lookUp(fresh map[netip.Addr]bool) {
	for name, svc := range st.services {
		for _, addr := range svc.ClusterIPs {
			if fresh[addr] {
				st.externals[addr].clusterIPs[name]++
			}
		}
	}
	for _, slice := range st.slices {
		st.lookUpSlice(slice, fresh)
	}
	for _, r := range st.recalled {
		st.lookUpSlice(r.all, fresh)
	}
}

func (st *State) lookUpSlice(slice *Slice, fresh map[netip.Addr]bool) {
	name, _ := slice.service()
	for i := range slice.Endpoints {
		if addr := slice.Endpoints[i].Addr; fresh[addr] {
			st.externals[addr].endpoints[name]++
		}
	}
}

func (st *State) countClusterIPs(name ServiceName, addrs []netip.Addr, n int, dirty map[ServiceName]bool) {
	for _, addr := range addrs {
		if e := st.externals[addr]; e != nil {
			e.count(e.clusterIPs, name, n, dirty)
		}
	}
}

// countEndpoints notes that a slice comes (1) or goes (-1).
func (st *State) countEndpoints(slice *Slice, n int, dirty map[ServiceName]bool) {
	if len(st.externals) == 0 {
		return
	}
	name, _ := slice.service()
	for i := range slice.Endpoints {
		if e := st.externals[slice.Endpoints[i].Addr]; e != nil {
			e.count(e.endpoints, name, n, dirty)
		}
	}
}

func (e *external) count(of map[ServiceName]int, name ServiceName, n int, dirty map[ServiceName]bool) {
	if of[name] += n; of[name] == 0 {
		delete(of, name)
	}
	maps.Copy(dirty, e.claimants)
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

// refuses says why a Service may not have an external IP, "" where it may.
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
			return "is an address of this node, and --external-ips off-node is set"
		}
		return ""
	}
	if owner, ok := firstBut(name, e.endpoints); ok && e.endpoints[name] == 0 {
		return "is the address of an endpoint of Service " + owner.String()
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

// refusedExternalIPs returns a Problem for every external IP that a Service may
// not have.
func (st *State) refusedExternalIPs() (problems []Problem) {
	for _, addr := range slices.SortedFunc(maps.Keys(st.externals), netip.Addr.Compare) {
		for _, name := range sortedNames(st.externals[addr].claimants) {
			if reason := st.refuses(name, addr); reason != "" {
				problems = append(problems, Problem{
					File: st.File(name), Object: "Service " + name.String(), Field: "spec.externalIPs", Value: addr.String(),
					Reason: "is not used: it " + reason, Remedy: "take an address that leads nowhere else",
				})
			}
		}
	}
	return problems
}

// Problems returns what of the Services cannot be done because of others, or of
// what they ask for in all, in a fixed order.
func (st *State) Problems() []Problem {
	problems := st.refusedExternalIPs()
	for _, name := range sortedNames(st.oversized) {
		p := st.oversized[name]
		p.File = st.File(name)
		problems = append(problems, p)
	}
	return problems
}
