package lb

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// State is everything known of Services, their endpoints and this node. Taking
// a change, or asking after a Service, costs as much as that change or Service
// is large, however many others there are.
//
// A State is not safe for concurrent use. It keeps the objects that it is given
// and never writes to them; nor may the giver once it has given them.
type State struct {
	node      Node
	services  map[ServiceName]*Service
	slices    map[SliceName]*Slice
	byService map[ServiceName][]*Slice // sorted by name, never an empty list

	healthChecks map[ServiceName]HealthCheck // as taken last
	recheck      map[ServiceName]bool        // changed since then
	caches       map[ServiceName]*selectionCache
	cacheFrom    int // endpoints of a Service
	recalled     map[ServiceName]*recalled
	drained      Drained

	externalIPs   ExternalIPs
	externals     map[netip.Addr]*external
	fresh         []netip.Addr // of these, not looked up yet
	servers       servers
	refused       map[ServiceName][]Problem // as looked for last
	changedClaims map[ServiceName]bool      // of Services whose refusals are to be looked at again
	apiServers    map[AddrPort]bool
	cidrs         []netip.Prefix
	podRanges     podRanges
	local         map[netip.Addr]bool // addresses of this node
	oversized     map[ServiceName]Problem
}

// NewState returns a State that knows nothing.
func NewState() *State {
	return &State{
		services:  map[ServiceName]*Service{},
		slices:    map[SliceName]*Slice{},
		byService: map[ServiceName][]*Slice{},

		healthChecks: map[ServiceName]HealthCheck{},
		recheck:      map[ServiceName]bool{},
		caches:       map[ServiceName]*selectionCache{},
		cacheFrom:    cacheFrom,
		recalled:     map[ServiceName]*recalled{},

		externals:     map[netip.Addr]*external{},
		servers:       servers{answers: map[question]string{}},
		refused:       map[ServiceName][]Problem{},
		changedClaims: map[ServiceName]bool{},
		oversized:     map[ServiceName]Problem{},
	}
}

// Apply takes the objects and the node of an update, and returns the sorted
// names of the Services whose Frontends or Seen may have changed by it, also
// those that ask for an external IP which is now, or no longer, another's. An
// object that equals the one seen last, and the removal of an unseen one, change
// nothing. A slice that moves from one Service to another changes both. A
// slice that names no Service belongs to none.
//
// Pods, Problems, Frozen, FrozenEndpoints and Partial are for others: Apply ignores them.
func (st *State) Apply(u Update) []ServiceName { return sortedNames(st.Take(u)) }

// Take does so, and returns the names in no order.
func (st *State) Take(u Update) map[ServiceName]bool {
	dirty := map[ServiceName]bool{}
	st.setServiceCIDRs(u.ServiceCIDRs, dirty)
	st.setPodRanges(u.PodRanges, dirty)
	st.setAPIServers(u.APIServers, dirty)
	was := map[ServiceName]*Service{}
	for name, svc := range u.Services {
		old := st.services[name]
		if st.putService(name, svc) {
			dirty[name] = true
			was[name] = old
			st.countService(name, old, svc, dirty)
		}
	}
	st.lookUp()
	for name, slice := range u.Slices {
		st.putSlice(name, slice, dirty)
	}
	if u.Node != nil && st.setNode(*u.Node) {
		for name := range st.services {
			dirty[name] = true
		}
	}
	for name, old := range was {
		st.askNode(name, old, st.services[name])
	}
	st.servers.forget()
	for name := range dirty {
		st.recheck[name] = true
	}
	maps.Copy(st.changedClaims, dirty)
	return dirty
}

// setNode replaces this node, and says whether selection may change by that.
func (st *State) setNode(n Node) bool {
	old := st.node
	st.node = n
	return n.Name != old.Name || n.Zone != old.Zone
}

// putService stores, replaces or (nil) removes a Service, and says whether that
// changed anything.
func (st *State) putService(name ServiceName, svc *Service) bool {
	old, known := st.services[name]
	if svc != nil {
		svc = svc.withPolicy(old)
	}
	switch {
	case svc == nil:
		delete(st.services, name)
		delete(st.caches, name)
		delete(st.oversized, name)
		return known
	case known && old.equal(svc):
		st.services[name] = svc // it may come from another file now
		return false
	default:
		st.services[name] = svc
		return true
	}
}

// putSlice stores, replaces or (nil) removes a slice, and marks as dirty the
// Services that it leaves, joins or changes.
func (st *State) putSlice(name SliceName, slice *Slice, dirty map[ServiceName]bool) {
	old, known := st.slices[name]
	if slice != nil {
		slice = slice.withWeights(old)
	}
	if known && slice != nil && old.equal(slice) {
		return
	}
	if known {
		st.detach(old, dirty)
		delete(st.slices, name)
	}
	if slice == nil {
		return
	}
	if svc, ok := slice.service(); ok {
		st.slices[name] = slice
		st.attach(svc, slice, dirty)
		dirty[svc] = true
	}
}

// attach puts a slice among those of a Service, in order of names.
func (st *State) attach(svc ServiceName, slice *Slice, dirty map[ServiceName]bool) {
	list := st.byService[svc]
	i, _ := slices.BinarySearchFunc(list, slice.Name, compareName)
	st.byService[svc] = slices.Insert(list, i, slice)
	st.countEndpoints(slice, 1, dirty)
	if c := st.caches[svc]; c != nil {
		c.changed(nil, slice)
	}
}

// detach takes a slice from those of its Service, which becomes dirty.
func (st *State) detach(slice *Slice, dirty map[ServiceName]bool) {
	svc, _ := slice.service()
	st.countEndpoints(slice, -1, dirty)
	list := st.byService[svc]
	i, _ := slices.BinarySearchFunc(list, slice.Name, compareName)
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		st.byService[svc] = list
	} else {
		delete(st.byService, svc)
	}
	if c := st.caches[svc]; c != nil {
		c.changed(slice, nil)
	}
	dirty[svc] = true
}

// Frontends returns the frontends of a Service as of now, as the function
// Frontends does, or nil where the Service is not known.
func (st *State) Frontends(name ServiceName) []Frontend { return st.keep(name, st.find(name)) }

// File returns the file that a Service was read from, "" where it has none.
func (st *State) File(name ServiceName) string {
	if svc := st.services[name]; svc != nil {
		return svc.File
	}
	return ""
}

// Seen says whether a Service itself was seen, and whether at least one of its slices
// was. Either comes without the other while a source is still reading.
func (st *State) Seen(name ServiceName) (service, slices bool) {
	_, service = st.services[name]
	return service, len(st.byService[name]) > 0
}

// Slice returns a slice as last told, nil where it is not known.
func (st *State) Slice(name SliceName) *Slice { return st.slices[name] }

// Services returns the sorted names of all known Services.
func (st *State) Services() []ServiceName { return sortedNames(st.services) }

// Node returns this node as last told, the zero Node before that.
func (st *State) Node() Node { return st.node }

// compareName orders the slices of one Service, which are all in its namespace.
func compareName(s *Slice, name string) int { return cmp.Compare(s.Name, name) }

// sortedNames returns the keys of a map in order, nil where there are none.
func sortedNames[V any](of map[ServiceName]V) []ServiceName {
	return slices.SortedFunc(maps.Keys(of), ServiceName.Compare)
}
