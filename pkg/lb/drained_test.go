package lb

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// drainable is a State with a Service of two backends, on node-a and node-b.
func drainable(t *testing.T, weights []EndpointWeight) (*State, ServiceName) {
	t.Helper()
	name := ServiceName{"default", "web"}
	s := NewState()
	s.Apply(Update{
		Node: &Node{Name: "node-a"},
		Services: map[ServiceName]*Service{name: {
			ServiceName: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Weights: weights,
			Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
		}},
		Slices: map[SliceName]*Slice{{"default", "web-1"}: {
			SliceName: SliceName{"default", "web-1"}, Service: "web", Ports: []SlicePort{{Name: "http", Protocol: TCP, Port: 8080}},
			Endpoints: []Endpoint{
				{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Serving: true, Where: Topology{Node: "node-a"}.Share()},
				{Addr: netip.MustParseAddr("10.244.0.2"), Ready: true, Serving: true, Where: Topology{Node: "node-b"}.Share()},
			},
		}},
	})
	return s, name
}

func mustDrain(t *testing.T, words ...string) Drained {
	t.Helper()
	d, err := ParseDrained(words)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestADrainedBackendGetsNoConnectionsAndKeepsThoseThatItHas(t *testing.T) {
	for _, weights := range [][]EndpointWeight{nil, {{Addr: netip.MustParseAddr("10.244.0.2"), Weight: 7}}} {
		for _, word := range []string{"10.244.0.2:8080/TCP", "node/node-b"} {
			s, name := drainable(t, weights)
			before := s.Frontends(name)
			if diff := cmp.Diff([]ServiceName{name}, s.SetDrained(mustDrain(t, word))); diff != "" {
				t.Errorf("drain %s: changed (-want +got):\n%s", word, diff)
			}
			f := s.Frontends(name)[0]
			if got := fmt.Sprint(f.Views[Internal].Backends); got != "[10.244.0.1:8080/TCP]" {
				t.Errorf("drain %s: new connections go to %s", word, got)
			}
			if got := fmt.Sprint(f.Members); got != "[10.244.0.1:8080/TCP 10.244.0.2:8080/TCP]" {
				t.Errorf("drain %s: members are %s", word, got)
			}
			s.SetDrained(Drained{})
			if diff := cmp.Diff(before, s.Frontends(name), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("drain and undrain %s (-before +after):\n%s", word, diff)
			}
		}
	}
}

func TestAnotherPortOrNodeIsNotDrained(t *testing.T) {
	s, name := drainable(t, nil)
	for _, word := range []string{"10.244.0.2:80/TCP", "10.244.0.2:8080/UDP", "node/node-c"} {
		if dirty := s.SetDrained(mustDrain(t, word)); len(dirty) > 0 {
			t.Errorf("drain %s changes %s", word, dirty)
		}
		if n := len(s.Frontends(name)[0].Views[Internal].Backends); n != 2 {
			t.Errorf("drain %s: %d backends are left", word, n)
		}
	}
}

func TestServicesThatAreLeftAloneAreNamed(t *testing.T) {
	s, _ := drainable(t, nil)
	s.cacheFrom = 1
	s.SetDrained(mustDrain(t, "node/node-b"))
	if alone := s.LeftAlone(mustDrain(t, "10.244.0.2:8080/TCP")); alone != nil {
		t.Errorf("what is drained already leaves %s alone", alone)
	}
	if diff := cmp.Diff([]string{"default/web:http"}, s.LeftAlone(mustDrain(t, "node/node-a"))); diff != "" {
		t.Errorf("left alone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"node/node-b"}, s.Drained().Words()); diff != "" {
		t.Errorf("a question has changed what is drained (-want +got):\n%s", diff)
	}
	s.SetDrained(Drained{})
	if diff := cmp.Diff([]string{"default/web:http"}, s.LeftAlone(mustDrain(t, "node/node-a", "node/node-b"))); diff != "" {
		t.Errorf("left alone of a Service that is cached (-want +got):\n%s", diff)
	}
}

func TestWhatIsDrainedIsMissedOnceItIsGone(t *testing.T) {
	s, _ := drainable(t, nil)
	d := mustDrain(t, "10.244.0.2:8080/TCP", "10.244.0.3:8080/TCP", "node/node-z")
	if diff := cmp.Diff([]string{"10.244.0.3:8080/TCP"}, s.Missing(d).Words()); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}

func TestWordsOfWhatIsDrainedAreRead(t *testing.T) {
	words := []string{"10.0.0.1:80/TCP", "[fd00::1]:53/UDP", "node/a"}
	if diff := cmp.Diff(words, mustDrain(t, "node/a", "[fd00::1]:53/UDP", "10.0.0.1:80/TCP").Words()); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "node/", "10.0.0.1:80", "10.0.0.1:80/tcp", "10.0.0.1:0/TCP", "10.0.0.1/TCP", "web"} {
		if d, err := ParseDrained([]string{bad}); err == nil {
			t.Errorf("%q is read as %v", bad, d.Words())
		}
	}
}
