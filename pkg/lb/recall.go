package lb

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// recalled is what a Service had before this process, as its frontends tell.
type recalled struct {
	had   []Frontend
	all   []*Slice       // every backend of them, by port
	stood map[place]bool // in a slice since: what leaves it is gone
}

// Recall has a Service keep the endpoints behind frontends that it had, but for those that
// stand, or stood since, in a slice of it, until Forget: one of its slices cannot be read,
// and they may be of that one. It returns the sorted names of other Services that this may change.
func (st *State) Recall(name ServiceName, had []Frontend) []ServiceName {
	byPort := map[endpointPort]*Slice{}
	var all []*Slice
	for _, f := range had {
		for _, b := range f.Members {
			at := endpointPort{b.Port, b.Protocol}
			if byPort[at] == nil {
				byPort[at] = &Slice{SliceName: SliceName{Namespace: name.Namespace}, Service: name.Name, Ports: []SlicePort{{Port: b.Port, Protocol: b.Protocol}}}
				all = append(all, byPort[at])
			}
			byPort[at].Endpoints = append(byPort[at].Endpoints, Endpoint{Addr: b.Addr, Pod: "?"}) // it may be one, see endpointAt
		}
	}
	st.recalled[name] = &recalled{had, all, map[place]bool{}}
	return st.recount(name, all, 1)
}

// Forget ends Recall, and returns the same.
func (st *State) Forget(name ServiceName) []ServiceName {
	r := st.recalled[name]
	if r == nil {
		return nil
	}
	delete(st.recalled, name)
	return st.recount(name, r.all, -1)
}

// recount notes that endpoints are recalled (1) or not any more (-1).
func (st *State) recount(name ServiceName, all []*Slice, n int) []ServiceName {
	dirty := map[ServiceName]bool{}
	for _, slice := range all {
		st.countEndpoints(slice, n, dirty)
	}
	st.recheck[name] = true
	maps.Copy(st.changedClaims, dirty)
	return sortedNames(dirty)
}

// Recalled returns the names of the Services that keep what they had. Forget may be called
// meanwhile.
func (st *State) Recalled() iter.Seq[ServiceName] { return maps.Keys(st.recalled) }

// Recalls says whether a Service keeps what it had.
func (st *State) Recalls(name ServiceName) bool { return st.recalled[name] != nil }

// slicesOf returns the slices of a Service, and others with what it keeps beside them.
func (st *State) slicesOf(name ServiceName) []*Slice {
	from, svc, r := st.byService[name], st.services[name], st.recalled[name]
	if r == nil || svc == nil {
		return from
	}
	m := memory{svc: svc, node: st.node, stands: map[place]*Endpoint{}, stood: r.stood, found: map[found]*recollection{}}
	m.look(from)
	for _, port := range svc.Ports {
		for _, family := range []Family{IPv4, IPv6} {
			m.recall(slices.DeleteFunc(slices.Clone(r.had), func(f Frontend) bool {
				return f.Port != port.Name || f.Protocol != port.Protocol || FamilyOf(f.Addr) != family
			}))
		}
	}
	return append(slices.Clip(from), m.slices()...)
}

// place is where an endpoint stands behind a Service port.
type place struct {
	port     string
	protocol Protocol
	addr     netip.Addr
}

// found is a backend of a Service port.
type found struct {
	port    string
	backend AddrPort
}

// recollection is an endpoint while it is read back, with the Topology that it is to share.
type recollection struct {
	Endpoint
	Topology
}

// memory reads endpoints back from frontends: such that the same views follow from them,
// together with the endpoints that stand in slices.
type memory struct {
	svc    *Service
	node   Node
	stands map[place]*Endpoint // in slices
	stood  map[place]bool
	found  map[found]*recollection // behind frontends alone
	far    string                  // a zone that is not that of this node
}

// notOurs is a zone that no node has.
const notOurs = "-"

// look notes what stands in slices.
func (m *memory) look(from []*Slice) {
	m.far = notOurs
	for _, s := range from {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			for _, p := range s.Ports {
				at := place{p.Name, p.Protocol, e.Addr}
				m.stands[at], m.stood[at] = e, true
			}
			if zone := e.Where.Topology().Zone; zone != "" && !e.inZone(m.node) {
				m.far = zone
			}
		}
	}
}

// recall reads the frontends of one Service port in one family.
func (m *memory) recall(had []Frontend) {
	why, elsewhere := WhyUnknown, false // of the views of all endpoints; whether there are usable ones on other nodes
	for _, f := range had {
		for _, v := range f.Views[:FallbackZone] {
			if elsewhere = elsewhere || v.NoLocal; v.Why != WhyLocal {
				why = cmp.Or(why, v.Why)
			}
		}
	}
	weightless, serving := why == WhyWeightless, m.serve(had)
	for _, f := range had {
		for _, b := range f.Members {
			m.endpoint(f, b, Endpoint{Ready: weightless || elsewhere && why == WhyUnknown, Serving: serving, Drained: weightless})
		}
	}
	for _, f := range had {
		for i, v := range f.Views {
			zone, node := m.nearest(f, v)
			for _, b := range v.Backends {
				if e := m.endpoint(f, b, Endpoint{}); e != nil {
					e.Zone, e.Node = cmp.Or(e.Zone, zone), cmp.Or(e.Node, node)
					m.see(e, i, v.Why, why)
				}
			}
		}
	}
	m.weigh(had)
}

// serve says whether the members of one Service port serve: datagrams keep others only while none
// does, see counts.keeps.
func (m *memory) serve(had []Frontend) bool {
	for _, f := range had {
		for _, b := range f.Members {
			if e := m.stands[place{f.Port, b.Protocol, b.Addr}]; e != nil && b.Protocol == UDP && !e.serves() {
				return false
			}
		}
	}
	return true
}

// endpoint returns the endpoint of a backend, as given where it is new; nil where
// slices tell of it.
func (m *memory) endpoint(f Frontend, b AddrPort, fresh Endpoint) *recollection {
	if m.stood[place{f.Port, b.Protocol, b.Addr}] {
		return nil
	}
	at := found{f.Port, b}
	if m.found[at] == nil {
		fresh.Addr = b.Addr
		m.found[at] = &recollection{Endpoint: fresh}
	}
	return m.found[at]
}

// see notes what an endpoint must be that is in a view. Known is why those under the
// traffic policy Cluster have what they have.
func (m *memory) see(e *recollection, view int, why, known Why) {
	if why == WhyLocal {
		m.seeLocal(e, known)
		return
	}
	e.Ready, e.Terminating = known != WhyTerminating, known == WhyTerminating
	switch {
	case why == WhyPreferredNode:
		e.Node, e.Zone = m.node.Name, m.node.Zone
	case why == WhyPreferredZone, view == FallbackZone:
		e.Zone = m.node.Zone
	case why == WhyZoneHints:
		e.ZoneHints = Names(m.node.Zone)
	case why == WhyNodeHints:
		e.NodeHints = Names(m.node.Name)
	case why == WhyHintsOthers, why == WhyNoZone:
		e.ZoneHints = notOurs
	case why == WhyEverywhere && known == WhyZoneHints && e.ZoneHints == "":
		e.ZoneHints = notOurs
	case why == WhyEverywhere && known == WhyNodeHints && e.NodeHints == "":
		e.NodeHints = notOurs
	}
	if e.Zone == "" {
		e.Zone = m.far
	}
}

// nearest returns the zone and the node of all backends of a view, where it is known that
// none is nearer than the others.
func (m *memory) nearest(f Frontend, v View) (zone, node string) {
	if v.Why != WhyNothingNearer {
		return "", ""
	}
	for _, b := range v.Backends {
		e := m.stands[place{f.Port, b.Protocol, b.Addr}]
		if e != nil && e.Ready && e.inZone(m.node) {
			zone = m.node.Zone
		}
		if e != nil && e.Ready && e.isOn(m.node) && m.svc.Zones == ZonePreferNode {
			node = m.node.Name
		}
	}
	return zone, node
}

// seeLocal notes that an endpoint is on this node. Where others see all endpoints but not
// this one, it is hinted to them, or terminates.
func (m *memory) seeLocal(e *recollection, known Why) {
	e.Node = m.node.Name
	if e.Ready || e.Terminating {
		return
	}
	switch known {
	case WhyUnknown:
		e.Ready = true
	case WhyZoneHints:
		e.Ready, e.ZoneHints = true, notOurs
	case WhyNodeHints:
		e.Ready, e.NodeHints = true, notOurs
	default:
		e.Terminating = true
	}
}

// weigh gives endpoints the weights that views show. The largest one relates most of them
// to each other.
func (m *memory) weigh(had []Frontend) {
	var views []View
	for _, f := range had {
		views = append(views, f.Views[:]...)
	}
	slices.SortStableFunc(views, func(a, b View) int { return len(b.Backends) - len(a.Backends) })
	for _, v := range views {
		m.weighView(had[0], v)
	}
}

// weighView takes the shares of a view's backends as weights, in proportion to one that
// stands in a slice.
func (m *memory) weighView(f Frontend, v View) {
	share := func(i int) uint64 {
		if v.Weights == nil {
			return 1
		}
		return uint64(v.Weights[i])
	}
	weight, of := uint64(DefaultWeight), uint64(1)
	for i, b := range v.Backends {
		if e := m.stands[place{f.Port, b.Protocol, b.Addr}]; e != nil && !e.Drained {
			weight, of = uint64(cmp.Or(e.Weight, DefaultWeight)), share(i)
			break
		}
	}
	for i, b := range v.Backends {
		if e := m.endpoint(f, b, Endpoint{}); e != nil && e.Weight == 0 {
			e.Weight = uint32(min(max((share(i)*weight+of/2)/of, 1), MaxWeight))
		}
	}
}

// slices returns what was found as slices, one for each port.
func (m *memory) slices() (out []*Slice) {
	byPort := map[SlicePort]*Slice{}
	for at, e := range m.found {
		port := SlicePort{Name: at.port, Protocol: at.backend.Protocol, Port: at.backend.Port}
		if byPort[port] == nil {
			byPort[port] = &Slice{Service: m.svc.Name, Ports: []SlicePort{port}}
			out = append(out, byPort[port])
		}
		e.Where = e.Share()
		byPort[port].Endpoints = append(byPort[port].Endpoints, e.Endpoint)
	}
	return out
}
