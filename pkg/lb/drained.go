package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Drained is the backends that an operator has taken out of use on this node, one by one or by
// the node that they run on. They keep the connections that they have and get no new ones,
// whatever their weights are.
type Drained struct {
	Backends map[AddrPort]bool
	Nodes    map[string]bool
}

// IsEmpty says whether none is.
func (d Drained) IsEmpty() bool { return len(d.Backends)+len(d.Nodes) == 0 }

// With returns both together.
func (d Drained) With(more Drained) Drained {
	out := Drained{Backends: map[AddrPort]bool{}, Nodes: map[string]bool{}}
	for _, from := range []Drained{d, more} {
		maps.Copy(out.Backends, from.Backends)
		maps.Copy(out.Nodes, from.Nodes)
	}
	return out
}

// Without returns what is not in less.
func (d Drained) Without(less Drained) Drained {
	out := d.With(Drained{})
	maps.DeleteFunc(out.Backends, func(b AddrPort, _ bool) bool { return less.Backends[b] })
	maps.DeleteFunc(out.Nodes, func(n string, _ bool) bool { return less.Nodes[n] })
	return out
}

// Words returns all of them, sorted: 10.0.0.1:80/TCP, node/node-b.
func (d Drained) Words() []string {
	out := []string{}
	for _, b := range slices.SortedFunc(maps.Keys(d.Backends), AddrPort.Compare) {
		out = append(out, b.String())
	}
	for _, n := range slices.Sorted(maps.Keys(d.Nodes)) {
		out = append(out, NodeWord+n)
	}
	return out
}

// NodeWord begins the words that name a node.
const NodeWord = "node/"

// ParseDrained reads what Words returns.
func ParseDrained(words []string) (Drained, error) {
	out := Drained{}.With(Drained{})
	for _, w := range words {
		if node, ok := strings.CutPrefix(w, NodeWord); ok && node != "" {
			out.Nodes[node] = true
			continue
		}
		at, err := ParseAddrPort(w)
		if err != nil {
			return Drained{}, err
		}
		out.Backends[at] = true
	}
	return out, nil
}

// ParseAddrPort reads what AddrPort.String returns.
func ParseAddrPort(word string) (AddrPort, error) {
	address, protocol, _ := strings.Cut(word, "/")
	at, err := netip.ParseAddrPort(address)
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if err == nil && at.Port() != 0 && protocol == p.String() {
			return AddrPort{Addr: at.Addr().Unmap(), Port: at.Port(), Protocol: p}, nil
		}
	}
	return AddrPort{}, fmt.Errorf("%s: neither a backend such as 10.0.0.1:80/TCP nor a node such as node/NAME", Quote(word))
}

// takeOut has candidates that are drained get no connections.
func (d Drained) takeOut(all []candidate) {
	for i := range all {
		if d.has(all[i]) {
			all[i].weight = 0
		}
	}
}

// hasAny says whether a candidate is drained.
func (d Drained) hasAny(all []candidate) bool {
	return !d.IsEmpty() && slices.ContainsFunc(all, d.has)
}

func (d Drained) has(c candidate) bool {
	return d.Backends[c.backend] || len(d.Nodes) > 0 && d.Nodes[c.endpoint.Where.Topology().Node]
}

// SetDrained says which backends are drained from now on, and returns the sorted names of the
// Services whose Frontends may have changed by it.
func (st *State) SetDrained(d Drained) []ServiceName {
	changed := d.Without(st.drained).With(st.drained.Without(d))
	st.drained = d
	dirty := map[ServiceName]bool{}
	for _, svc := range st.Having(changed) {
		dirty[svc] = true
		delete(st.caches, svc)
	}
	return sortedNames(dirty)
}

// Drained returns what was set last.
func (st *State) Drained() Drained { return st.drained }

// Missing returns those of some backends that no slice tells of. It looks at all of them.
func (st *State) Missing(d Drained) Drained {
	there := Drained{Backends: map[AddrPort]bool{}, Nodes: d.Nodes} // a node without backends may have some again
	st.each(d, func(_ *Slice, c candidate) { there.Backends[c.backend] = true })
	return d.Without(there)
}

// Find returns the backends that slices tell of, of those that are meant.
func (st *State) Find(d Drained) []AddrPort {
	found := map[AddrPort]bool{}
	st.each(d, func(_ *Slice, c candidate) { found[c.backend] = true })
	return slices.SortedFunc(maps.Keys(found), AddrPort.Compare)
}

// LeftAlone returns the Service ports of which some clients have a backend now, and none once
// these are drained, too: namespace/name:port.
func (st *State) LeftAlone(d Drained) (alone []string) {
	was := st.drained
	for _, name := range st.Having(d) {
		had := st.Frontends(name)
		st.drainOf(name, was.With(d))
		for i, f := range st.Frontends(name) {
			for v := range f.Views[:FallbackZone] {
				if len(f.Views[v].Backends) == 0 && len(had[i].Views[v].Backends) > 0 {
					alone = append(alone, strings.TrimSuffix(name.String()+":"+f.Port, ":"))
				}
			}
		}
		st.drainOf(name, was)
	}
	slices.Sort(alone)
	return slices.Compact(alone)
}

// CarriedHere returns the Service ports, namespace/name:port, whose packets other nodes carry to one of these backends on this node.
func (st *State) CarriedHere(d Drained) (all []string) {
	for _, name := range st.Having(d) {
		for _, f := range st.Frontends(name) {
			for _, b := range f.Views[External].Backends {
				if home := f.Homes[b]; f.Carried && home == st.node.Name && (d.Backends[b] || d.Nodes[home]) {
					all = append(all, strings.TrimSuffix(name.String()+":"+f.Port, ":"))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// drainOf says what is drained, which matters to one Service: what is cached of that is of what was
// drained before.
func (st *State) drainOf(name ServiceName, d Drained) {
	st.drained = d
	delete(st.caches, name)
}

// Having returns the sorted names of the Services that have some backends.
func (st *State) Having(d Drained) []ServiceName {
	out := map[ServiceName]bool{}
	st.each(d, func(s *Slice, _ candidate) {
		if svc, ok := s.service(); ok {
			out[svc] = true
		}
	})
	return sortedNames(out)
}

// each calls do with what slices tell of these backends.
func (st *State) each(d Drained, do func(*Slice, candidate)) {
	for _, s := range st.slices {
		for i := range s.Endpoints {
			for _, p := range s.Ports {
				c := candidate{backend: AddrPort{s.Endpoints[i].Addr, p.Port, p.Protocol}, endpoint: &s.Endpoints[i]}
				if d.has(c) {
					do(s, c)
				}
			}
		}
	}
}
