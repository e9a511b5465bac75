package lb

import (
	"net/netip"
	"slices"
	"testing"
)

// weighted is a Service with endpoints 10.0.0.1 … of the weights that its slice says.
func weighted(b Balancing, endpoints ...Endpoint) []Frontend {
	for i := range endpoints {
		endpoints[i].Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		endpoints[i].Ready, endpoints[i].Serving = true, true
	}
	svc := &Service{
		ServiceName: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []ServicePort{{Protocol: TCP, Port: 80}}, Balancing: b,
	}
	slice := &Slice{SliceName: SliceName{"default", "web-1"}, Service: "web", Ports: []SlicePort{{Protocol: TCP, Port: 8080}}, Endpoints: endpoints}
	return Frontends(svc, []*Slice{slice}, Node{Name: "a"})
}

func TestWeightsComeFromTheServiceThenFromSlices(t *testing.T) {
	weights := []EndpointWeight{{netip.MustParseAddr("10.0.0.1"), 9}, {netip.MustParseAddr("10.0.0.4"), 0}}
	f := weighted(Balancing{Algorithm: WLC, TableSize: 7, Weights: weights}, Endpoint{Weight: 2}, Endpoint{Weight: 3}, Endpoint{}, Endpoint{Weight: 5})[0]
	if !slices.Equal(f.Internal.Weights, []uint32{9, 3, 1}) || len(f.Internal.Backends) != 3 {
		t.Errorf("weights %v of %v, want 9, 3 and 1 of three backends", f.Internal.Weights, f.Internal.Backends)
	}
	if len(f.Known) != 4 {
		t.Errorf("%v are known, want the one of weight 0 too", f.Known)
	}
	if f.Algorithm != WLC || f.TableSize != 7 {
		t.Errorf("algorithm %s with %d slots, want what the Service says", f.Algorithm, f.TableSize)
	}
}

func TestEqualWeightsAreNone(t *testing.T) {
	if f := weighted(Balancing{}, Endpoint{Weight: 5}, Endpoint{Weight: 5}, Endpoint{Drained: true})[0]; f.Internal.Weights != nil || len(f.Internal.Backends) != 2 {
		t.Errorf("weights %v of %v, want none of two", f.Internal.Weights, f.Internal.Backends)
	}
}

func TestAServiceWhoseEndpointsAllDrainTakesNobody(t *testing.T) {
	if f := weighted(Balancing{}, Endpoint{Drained: true}, Endpoint{Drained: true})[0]; len(f.Internal.Backends) != 0 || len(f.Known) != 2 {
		t.Errorf("backends %v, known %v, want none of two", f.Internal.Backends, f.Known)
	}
}

func TestWhatCannotBeUsedLeavesTheFormerSetting(t *testing.T) {
	name := ServiceName{"default", "web"}
	put := func(st *State, b Balancing, ports ...ServicePort) *Service {
		st.Apply(Update{Services: map[ServiceName]*Service{name: {ServiceName: name, Balancing: b, Ports: ports}}})
		return st.services[name]
	}
	st := NewState()
	put(st, Balancing{Algorithm: P2C, TableSize: 7})
	for range 2 { // one bad version after the other
		if got := put(st, Balancing{Keep: true}, ServicePort{Port: 80}); got.Balancing.Algorithm != P2C || got.Balancing.TableSize != 7 || len(got.Ports) != 1 {
			t.Errorf("%+v, want what was in force, and the new port", got)
		}
	}
	if got := put(st, Balancing{}); got.Balancing.Algorithm != AlgorithmDefault {
		t.Errorf("algorithm %s, want the default once the annotation is gone", got.Balancing.Algorithm)
	}

	endpoint := func(weight uint32) []Endpoint {
		return []Endpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Weight: weight}}
	}
	of := SliceName{"default", "web-1"}
	st.Apply(Update{Slices: map[SliceName]*Slice{of: {SliceName: of, Service: "web", Endpoints: endpoint(5)}}})
	st.Apply(Update{Slices: map[SliceName]*Slice{of: {SliceName: of, Service: "web", Endpoints: endpoint(0), KeepWeights: true}}})
	if got := st.slices[of].Endpoints[0].Weight; got != 5 {
		t.Errorf("weight %d, want the former 5", got)
	}
}
