package lb

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestABackendIsDescribedByItsSliceAndByOperators(t *testing.T) {
	where := Topology{Node: "node-a", Zone: "zone-a"}.Share()
	st := NewState()
	svc := service(webName, "10.96.0.1")
	svc.Weights = []EndpointWeight{{Addr: netip.MustParseAddr("10.0.0.5"), Weight: 0}}
	st.Apply(services(svc))
	s := of("web", &Slice{SliceName: SliceName{"default", "web-1"}, Ports: []SlicePort{{"http", TCP, 8080}}, Endpoints: []Endpoint{
		{Addr: netip.MustParseAddr("10.0.0.1"), Pod: "web-a", Where: where, Ready: true, Serving: true},
		{Addr: netip.MustParseAddr("10.0.0.2"), Serving: true, Terminating: true},
		{Addr: netip.MustParseAddr("10.0.0.3"), Terminating: true},
		{Addr: netip.MustParseAddr("10.0.0.4")},
		{Addr: netip.MustParseAddr("10.0.0.5"), Ready: true, Serving: true},
		{Addr: netip.MustParseAddr("10.0.0.6"), Ready: true, Serving: true, Drained: true},
		{Addr: netip.MustParseAddr("10.0.0.7"), Ready: true, Serving: true},
	}})
	old := of("web", &Slice{SliceName: SliceName{"default", "web-0"}, Ports: s.Ports, Endpoints: []Endpoint{
		{Addr: netip.MustParseAddr("10.0.0.1"), Pod: "was-here", Serving: true, Terminating: true},
	}})
	st.Apply(withSlices(s, old))
	st.SetDrained(Drained{Backends: map[AddrPort]bool{{netip.MustParseAddr("10.0.0.7"), 8080, TCP}: true}})
	got := ""
	for _, d := range st.Describe(nil) {
		got += fmt.Sprintln(d.Backend, d.Pod, d.Node, d.Zone, d.State)
	}
	if want := `10.0.0.1:8080/TCP default/web-a node-a zone-a ready
10.0.0.2:8080/TCP /   serving
10.0.0.3:8080/TCP /   terminating
10.0.0.4:8080/TCP /   unready
10.0.0.5:8080/TCP /   draining
10.0.0.6:8080/TCP /   draining
10.0.0.7:8080/TCP /   draining
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestADescriptionIsFoundByItsBackend(t *testing.T) {
	at := func(port uint16) AddrPort { return AddrPort{netip.MustParseAddr("10.0.0.1"), port, TCP} }
	all := Descriptions{{Backend: at(1)}, {Backend: at(3)}, {Backend: at(3), Service: webName}}
	for i, want := range all {
		if d := all.Of(want.Backend, want.Service); d != &all[i] {
			t.Errorf("got %v, want %v", d, want)
		}
	}
	for _, d := range []*Description{all.Of(at(2), ServiceName{}), all.Of(at(1), webName)} {
		if d != nil {
			t.Errorf("got %v for a backend of which nothing is said", d)
		}
	}
}

// Each Service has EndpointSlices of its own: in one an address may be ready that is not in the other, and have another Pod.
func TestABackendOfTwoServicesIsDescribedToEach(t *testing.T) {
	st := NewState()
	st.Apply(services(service(webName, "10.96.0.1")))
	addr := netip.MustParseAddr("10.0.0.1")
	slice := func(namespace, name, pod string, ready bool) *Slice {
		return of(name, &Slice{SliceName: SliceName{namespace, name + "-1"}, Ports: []SlicePort{{"http", TCP, 8080}}, Endpoints: []Endpoint{{Addr: addr, Pod: pod, Ready: ready}}})
	}
	st.Apply(withSlices(slice("store", "shop", "", false), slice("default", "web", "web-0", true), slice("default", "api", "api-0", false)))
	told := &Told{}
	for _, d := range st.Describe(nil) {
		told.Add(d)
	}
	at := AddrPort{addr, 8080, TCP}
	for _, want := range []Description{
		{Backend: at, Service: ServiceName{"store", "shop"}, State: StateUnready},
		{Backend: at, Service: ServiceName{"default", "web"}, Pod: PodName{"default", "web-0"}, State: StateReady},
		{Backend: at, Service: ServiceName{"default", "api"}, Pod: PodName{"default", "api-0"}, State: StateUnready},
	} {
		if got := told.Of(at, want.Service); got == nil || *got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := told.Of(at, ServiceName{"default", "other"}); got != nil {
		t.Errorf("%v of a Service that has no such backend", got)
	}
}

func TestOnlyWhatIsAskedForIsDescribed(t *testing.T) {
	st := NewState()
	st.Apply(services(service(webName, "10.96.0.1")))
	st.Apply(withSlices(of("web", &Slice{SliceName: SliceName{"default", "web-1"}, Ports: []SlicePort{{"http", TCP, 8080}}, Endpoints: []Endpoint{
		{Addr: netip.MustParseAddr("10.0.0.1"), Pod: "web-a", Ready: true}, {Addr: netip.MustParseAddr("10.0.0.2"), Pod: "web-b", Ready: true},
	}}), of("other", &Slice{SliceName: SliceName{"elsewhere", "other-1"}, Ports: []SlicePort{{"", UDP, 53}}, Endpoints: []Endpoint{
		{Addr: netip.MustParseAddr("10.0.0.3"), Ready: true}, {Addr: netip.MustParseAddr("fd00::3"), Pod: "web-a", Ready: true, Where: Topology{Node: "node-b"}.Share()},
	}})))
	for _, tc := range []struct{ words, want string }{
		{"10.0.0.1", "10.0.0.1:8080/TCP"},
		{"10.0.0.2:8080/TCP fd00::3", "10.0.0.2:8080/TCP [fd00::3]:53/UDP"},
		{"::ffff:10.0.0.1", "10.0.0.1:8080/TCP"},
		{"[fd00::3]:53/UDP", "[fd00::3]:53/UDP"},
		{"web:http/TCP", "10.0.0.1:8080/TCP 10.0.0.2:8080/TCP"},
		{"default/web", "10.0.0.1:8080/TCP 10.0.0.2:8080/TCP"},
		{"elsewhere/web", ""},
		{"web-a", "10.0.0.1:8080/TCP [fd00::3]:53/UDP"},
		{"elsewhere/web-a other", "10.0.0.3:53/UDP [fd00::3]:53/UDP"},
		{"node/node-b", "[fd00::3]:53/UDP"},
		{"node/node-c 10.0.0.3", "10.0.0.3:53/UDP"},
		{"10.0.0.9 / : - node/", ""},
	} {
		wantDescribed(t, st, tc.words, SelectionOf(strings.Fields(tc.words)), tc.want)
	}
	other := map[ServiceName]bool{{"elsewhere", "other"}: true, {"default", "other"}: true}
	wantDescribed(t, st, "a Service", &Selection{Services: other}, "10.0.0.3:53/UDP [fd00::3]:53/UDP")
	with := &Selection{Services: other, Addrs: map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true}}
	wantDescribed(t, st, "a Service and an address", with, "10.0.0.1:8080/TCP 10.0.0.3:53/UDP [fd00::3]:53/UDP")
}

// wantDescribed compares which backends are described to somebody who asks for some.
func wantDescribed(t *testing.T, st *State, what string, asked *Selection, want string) {
	t.Helper()
	var got []string
	for _, d := range st.Describe(asked) {
		got = append(got, d.Backend.String())
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%q: %q, want %q", what, got, want)
	}
}
