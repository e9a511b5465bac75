package lb

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAHealthCheckCountsDistinctReadyAddressesOnThisNode(t *testing.T) {
	name := ServiceName{"default", "web"}
	svc := &Service{ServiceName: name, HealthCheckNodePort: 32000}
	slice := func(port string, endpoints ...Endpoint) *Slice {
		return &Slice{SliceName: SliceName{"default", port}, Service: "web", Ports: []SlicePort{{port, TCP, 80}}, Endpoints: endpoints}
	}
	here := Endpoint{Addr: netip.MustParseAddr("10.0.0.1"), Ready: true, Serving: true, Where: Topology{Node: "a"}.Share()}
	there := Endpoint{Addr: netip.MustParseAddr("10.0.0.2"), Ready: true, Serving: true, Where: Topology{Node: "b"}.Share()}
	leaving := Endpoint{Addr: netip.MustParseAddr("10.0.0.3"), Serving: true, Terminating: true, Where: Topology{Node: "a"}.Share()}
	nowhere := Endpoint{Addr: netip.MustParseAddr("10.0.0.4"), Ready: true, Serving: true}
	st := NewState()
	st.Apply(Update{
		Services: map[ServiceName]*Service{name: svc, {"default", "api"}: {ServiceName: ServiceName{"default", "api"}}},
		Slices: map[SliceName]*Slice{
			{"default", "http"}:  slice("http", here, there, leaving, nowhere),
			{"default", "https"}: slice("https", here),
		},
		Node: &Node{Name: "a"},
	})
	if diff := cmp.Diff(map[ServiceName]HealthCheck{name: {Port: 32000, LocalEndpoints: 1}}, st.TakeHealthChecks(served)); diff != "" {
		t.Errorf("health checks (-want +got):\n%s", diff)
	}
	for _, change := range []struct {
		name string
		Update
		want int
	}{
		{"a slice has another endpoint here", Update{Slices: map[SliceName]*Slice{{"default", "http"}: slice("http", here, Endpoint{Addr: netip.MustParseAddr("10.0.0.5"), Ready: true, Where: Topology{Node: "a"}.Share()})}}, 2},
		{"a slice goes", Update{Slices: map[SliceName]*Slice{{"default", "http"}: nil}}, 1},
		{"the node has another name", Update{Node: &Node{Name: "b"}}, 0},
	} {
		st.Apply(change.Update)
		if diff := cmp.Diff(map[ServiceName]HealthCheck{name: {Port: 32000, LocalEndpoints: change.want}}, st.TakeHealthChecks(served)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", change.name, diff)
		}
	}
	st.Apply(Update{Slices: map[SliceName]*Slice{{"default", "https"}: slice("https", there, leaving)}})
	if got := st.TakeHealthChecks(served); len(got) != 1 || got[name].LocalEndpoints != 1 {
		t.Errorf("the other node is this one now: %v", got)
	}
	st.Apply(Update{Slices: map[SliceName]*Slice{{"default", "https"}: slice("https", there)}})
	if got := st.TakeHealthChecks(served); len(got) != 0 {
		t.Errorf("a change that changes no answer: %v", got)
	}
	st.Apply(Update{Services: map[ServiceName]*Service{name: {ServiceName: name}}})
	if diff := cmp.Diff(map[ServiceName]HealthCheck{name: {}}, st.TakeHealthChecks(served)); diff != "" {
		t.Errorf("a Service without the port (-want +got):\n%s", diff)
	}
	if got := st.TakeHealthChecks(served); len(got) != 0 {
		t.Errorf("what is gone is told again: %v", got)
	}
}

func TestOnlyNameAndZoneOfTheNodeDirtyServices(t *testing.T) {
	name := ServiceName{"default", "web"}
	st := NewState()
	st.Apply(Update{Services: map[ServiceName]*Service{name: {ServiceName: name}}, Node: &Node{Name: "a"}})
	if dirty := st.Apply(Update{Node: &Node{Name: "a", Leaving: true, IP4: netip.IPv4Unspecified()}}); len(dirty) != 0 {
		t.Errorf("dirty without a reason: %v", dirty)
	}
	if dirty := st.Apply(Update{Node: &Node{Name: "a", Zone: "z"}}); len(dirty) != 1 {
		t.Errorf("a new zone dirties %v", dirty)
	}
	if st.Node().Leaving {
		t.Error("the newest node does not count")
	}
}

func served(ServiceName) bool { return false }

func TestTheHealthCheckOfAnUnservedServiceWaits(t *testing.T) {
	name, st := ServiceName{"default", "web"}, NewState()
	st.Apply(Update{Services: map[ServiceName]*Service{name: {ServiceName: name, HealthCheckNodePort: 32000}}})
	if got := st.TakeHealthChecks(func(n ServiceName) bool { return n == name }); len(got) != 0 {
		t.Errorf("while it is unserved: %v", got)
	}
	if got := st.TakeHealthChecks(served); got[name].Port != 32000 {
		t.Errorf("once it is served: %v", got)
	}
}
