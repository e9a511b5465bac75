package lb

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// BackendState is what Kubernetes and operators say of a backend.
type BackendState string

// The states. Whether clients avoid a backend is up to the kernel.
const (
	StateReady       BackendState = "ready"
	StateServing     BackendState = "serving"     // terminates, and stands in where none is ready
	StateTerminating BackendState = "terminating" // and serves no more
	StateUnready     BackendState = "unready"
	StateDraining    BackendState = "draining" // of weight 0, or drained by an operator
)

// Description is whose a backend is, where, and what is said of it by the EndpointSlices of a Service.
type Description struct {
	Backend    AddrPort
	Service    ServiceName // the zero one where an earlier agent tells, which does not say it
	Pod        PodName     // the zero one where the EndpointSlice names none
	Node, Zone string      // "" where unknown
	State      BackendState
	// Slice is the name of its EndpointSlice, and Port that of the port there: where somebody asks for some backends.
	Slice, Port string
}

// Descriptions are sorted by backend and Service.
type Descriptions []Description

// Of returns that of a backend of a Service, nil where there is none.
func (all Descriptions) Of(at AddrPort, service ServiceName) *Description {
	i, found := slices.BinarySearchFunc(all, at, func(d Description, at AddrPort) int {
		return cmp.Or(d.Backend.Compare(at), d.Service.Compare(service))
	})
	if !found {
		return nil
	}
	return &all[i]
}

// described is a candidate with the Service of its slice.
type described struct {
	candidate
	service     ServiceName
	slice, port string
}

// Selection says of which backends somebody asks: those at some addresses, those that are Pods or
// stand behind Services of some names, of any namespace where this is empty, those on some nodes, and
// those of some Services, which take no more to find than they have backends where nothing else is asked.
type Selection struct {
	Addrs    map[netip.Addr]bool
	Names    map[ServiceName]bool
	Nodes    map[string]bool
	Services map[ServiceName]bool
}

// SelectionOf reads words: ADDRESS[:PORT], [NAMESPACE/]NAME[:PORT] or node/NAME, which may be a namespace, too.
func SelectionOf(words []string) *Selection {
	s := &Selection{Addrs: map[netip.Addr]bool{}, Names: map[ServiceName]bool{}, Nodes: map[string]bool{}}
	for _, word := range words {
		if addr, err := netip.ParseAddr(word); err == nil {
			s.Addrs[addr.Unmap()] = true
			continue
		}
		address, _, _ := strings.Cut(word, "/")
		if at, err := netip.ParseAddrPort(address); err == nil {
			s.Addrs[at.Addr().Unmap()] = true
			continue
		}
		if node, ok := strings.CutPrefix(word, NodeWord); ok && node != "" {
			s.Nodes[node] = true
		}
		word, _, _ = strings.Cut(word, ":")
		namespace, name, both := strings.Cut(word, "/")
		if !both {
			namespace, name = "", word
		}
		if name != "" { // which an endpoint that is no Pod has
			s.Names[ServiceName{namespace, name}] = true
		}
	}
	return s
}

// names says whether somebody asks for a name.
func (s *Selection) names(namespace, name string) bool {
	return s.Names[ServiceName{namespace, name}] || s.Names[ServiceName{"", name}]
}

// has says whether somebody asks for an endpoint of a slice; a nil Selection has all.
func (s *Selection) has(of *Slice, e *Endpoint) bool {
	return s == nil || s.Addrs[e.Addr] || len(s.Names) > 0 && (s.names(of.Namespace, of.Service) || s.names(of.Namespace, e.Pod)) ||
		len(s.Nodes) > 0 && s.Nodes[e.Where.Topology().Node] || len(s.Services) > 0 && s.Services[ServiceName{of.Namespace, of.Service}]
}

// servicesAlone says whether somebody asks for Services and nothing else.
func (s *Selection) servicesAlone() bool {
	return s != nil && len(s.Services) > 0 && len(s.Addrs)+len(s.Names)+len(s.Nodes) == 0
}

// slicesAsked goes through the slices that may have what is asked for.
func (st *State) slicesAsked(asked *Selection) iter.Seq[*Slice] {
	if !asked.servicesAlone() {
		return maps.Values(st.slices)
	}
	return func(yield func(*Slice) bool) {
		for name := range asked.Services {
			for _, s := range st.byService[name] {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Describe returns what is said of backends that slices tell of: of all, or of those in a selection. Of several
// that are one backend of a Service it is the one to believe, and of a selection one for each name of a port.
func (st *State) Describe(asked *Selection) Descriptions {
	var all []*described
	var of []candidate // a slice
	var ports []string // their names
	for s := range st.slicesAsked(asked) {
		of, ports = of[:0], ports[:0]
		for _, p := range s.Ports {
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; asked.has(s, e) {
					of = append(of, candidate{backend: AddrPort{e.Addr, p.Port, p.Protocol}, endpoint: e})
					ports = append(ports, p.Name)
				}
			}
		}
		if len(of) == 0 {
			continue
		}
		weigh(of, st.weightsFor(s))
		st.drained.takeOut(of)
		for i, c := range of {
			one := &described{candidate: c, service: ServiceName{s.Namespace, s.Service}}
			if asked != nil {
				one.slice, one.port = s.Name, ports[i]
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *described) int {
		return cmp.Or(a.backend.Compare(b.backend), a.service.Compare(b.service), cmp.Compare(a.port, b.port), preferred(a.endpoint, b.endpoint),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.endpoint.Pod, b.endpoint.Pod))
	})
	all = slices.CompactFunc(all, func(a, b *described) bool {
		return a.backend == b.backend && a.service == b.service && a.port == b.port
	})
	out := make(Descriptions, len(all))
	for i, d := range all {
		out[i] = d.description()
	}
	return out
}

// weightsFor returns the weights that the Service of a slice gives.
func (st *State) weightsFor(s *Slice) []EndpointWeight {
	name, _ := s.service()
	if svc := st.services[name]; svc != nil {
		return svc.Weights
	}
	return nil
}

func (d *described) description() Description {
	where := d.endpoint.Where.Topology()
	out := Description{Backend: d.backend, Service: d.service, Node: where.Node, Zone: where.Zone, State: d.state(), Slice: d.slice, Port: d.port}
	if d.endpoint.Pod != "" {
		out.Pod = PodName{Namespace: d.service.Namespace, Name: d.endpoint.Pod}
	}
	return out
}

func (d *described) state() BackendState {
	switch e := d.endpoint; {
	case d.weight == 0:
		return StateDraining
	case e.Ready:
		return StateReady
	case e.draining():
		return StateServing
	case e.Terminating:
		return StateTerminating
	default:
		return StateUnready
	}
}
