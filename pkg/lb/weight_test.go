package lb

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// weighted is a Service with endpoints 10.0.0.1 … of the weights that its slice says.
func weighted(weights []EndpointWeight, endpoints ...Endpoint) []Frontend {
	for i := range endpoints {
		endpoints[i].Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		endpoints[i].Ready, endpoints[i].Serving = true, true
	}
	svc := &Service{
		ServiceName: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []ServicePort{{Protocol: TCP, Port: 80}}, Weights: weights,
	}
	slice := &Slice{SliceName: SliceName{"default", "web-1"}, Service: "web", Ports: []SlicePort{{Protocol: TCP, Port: 8080}}, Endpoints: endpoints}
	return Frontends(svc, []*Slice{slice}, Node{Name: "a"})
}

func TestWeightsComeFromTheServiceThenFromSlices(t *testing.T) {
	weights := []EndpointWeight{{netip.MustParseAddr("10.0.0.1"), 9}, {netip.MustParseAddr("10.0.0.4"), 0}}
	f := weighted(weights, Endpoint{Weight: 2}, Endpoint{Weight: 3}, Endpoint{}, Endpoint{Weight: 5})[0]
	if !slices.Equal(f.Views[Internal].Weights, []uint32{9, 3, 1}) || len(f.Views[Internal].Backends) != 3 {
		t.Errorf("weights %v of %v, want 9, 3 and 1 of three backends", f.Views[Internal].Weights, f.Views[Internal].Backends)
	}
	if len(f.Members) != 4 {
		t.Errorf("%v are members, want the one of weight 0 too", f.Members)
	}
}

func TestEqualWeightsAreNone(t *testing.T) {
	if f := weighted(nil, Endpoint{Weight: 5}, Endpoint{Weight: 5}, Endpoint{Drained: true})[0]; f.Views[Internal].Weights != nil || len(f.Views[Internal].Backends) != 2 {
		t.Errorf("weights %v of %v, want none of two", f.Views[Internal].Weights, f.Views[Internal].Backends)
	}
}

func TestAServiceWhoseEndpointsAllDrainTakesNobody(t *testing.T) {
	if f := weighted(nil, Endpoint{Drained: true}, Endpoint{Drained: true})[0]; len(f.Views[Internal].Backends) != 0 || len(f.Members) != 2 {
		t.Errorf("backends %v, members %v, want none of two", f.Views[Internal].Backends, f.Members)
	}
}

func TestWhatCannotBeUsedLeavesTheFormerSetting(t *testing.T) {
	name := ServiceName{"default", "web"}
	put := func(st *State, svc Service) Service {
		svc.ServiceName = name
		st.Apply(Update{Services: map[ServiceName]*Service{name: &svc}})
		return *st.services[name]
	}
	st := NewState()
	good := Service{
		Policy:  Policy{Algorithm: P2C, TableSize: 7, DrainTime: time.Minute, Steering: Steering{AffinityTimeout: 5, SlowStart: 3}},
		Weights: []EndpointWeight{{netip.MustParseAddr("10.0.0.1"), 9}},
	}
	put(st, good)
	for range 2 { // one bad version after the other
		want := good
		want.ServiceName, want.KeepPolicy, want.AffinityTimeout, want.Ports = name, true, 10, []ServicePort{{Port: 80}}
		bad := Service{KeepPolicy: true, Ports: want.Ports}
		bad.AffinityTimeout = 10 // a field of the Service, not an annotation
		mustDiff(t, want, put(st, bad))
	}
	if got := put(st, Service{}); got.Algorithm != AlgorithmDefault {
		t.Errorf("algorithm %s, want the default once the annotation is gone", got.Algorithm)
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

// Where weights alone leave no endpoint, that is said, and not that there is none.
func TestWeightsOfZeroAreToldFromNoEndpoint(t *testing.T) {
	svc := &Service{ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), Ports: []ServicePort{{"http", TCP, 80, 30080}}, ExternalPolicy: PolicyLocal}
	drained := mustSlice(t, "1", "10.0.0.1 ready on=node-1; 10.0.0.2 ready; 10.0.0.3 unready")
	for i := range drained.Endpoints {
		drained.Endpoints[i].Drained = true
	}
	for _, f := range Frontends(svc, []*Slice{drained}, here) {
		for _, v := range f.Views[:FallbackZone] {
			mustDiff(t, WhyWeightless, v.Why)
		}
		mustDiff(t, 3, len(f.Members))
	}
	unready := mustSlice(t, "1", "10.0.0.3 unready")
	unready.Endpoints[0].Drained = true
	mustDiff(t, WhyNone, Frontends(svc, []*Slice{unready}, here)[1].Views[Internal].Why)
	drained.Endpoints[1].Drained = false
	mustDiff(t, WhyAll, Frontends(svc, []*Slice{drained}, here)[1].Views[Internal].Why)
}
