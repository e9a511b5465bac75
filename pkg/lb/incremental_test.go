package lb

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// A Service whose slices change one by one, as in a cluster, is what looking at
// all of it says; and mostly nobody looks at all of it.
func TestALargeServiceIsFollowedBySlices(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Service)
		// drain is what may be drained of 300, rarely.
		drain func(i int) Drained
		dead  int // of 10 slices, those without an endpoint that serves; none is ready then
	}{
		{"TCP", func(*Service) {}, nothing, 0},
		{"UDP", func(s *Service) { s.Ports[0].Protocol = UDP }, nothing, 0},
		{"UDP, mostly no endpoint that serves", func(s *Service) { s.Ports[0].Protocol = UDP }, nothing, 9},
		{"both policies", func(s *Service) {
			s.ExternalPolicy, s.Ports[0].NodePort = PolicyLocal, 30000
		}, nothing, 0},
		{"internal policy Local", func(s *Service) { s.InternalPolicy = PolicyLocal }, nothing, 0},
		{"drained", func(*Service) {}, drainSome, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(8, 8))
			svc := &Service{ServiceName: ServiceName{"default", "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("172.16.0.1")},
				Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}}}
			tc.edit(svc)
			st := NewState()
			st.cacheFrom = 1
			node := Node{Name: "node-1", Zone: "zone-a"}
			st.Apply(Update{Services: map[ServiceName]*Service{svc.ServiceName: svc}, Node: &node})
			all := map[SliceName]*Slice{}
			followed := 0
			for step := range 1500 {
				s := someSlice(rng, svc.Ports[0].Protocol)
				kill(rng, s, tc.dead)
				all[s.SliceName] = s
				st.Apply(Update{Slices: map[SliceName]*Slice{s.SliceName: s}})
				switch rng.IntN(30) {
				case 0:
					st.SetDrained(tc.drain(rng.IntN(300)))
				case 1:
					st.SetDrained(Drained{})
				case 2:
					st.LeftAlone(tc.drain(rng.IntN(300)))
				}
				if rng.IntN(3) == 0 {
					continue // several changes at once
				}
				before := st.caches[svc.ServiceName]
				got, want := st.Frontends(svc.ServiceName), frontendsOf(svc, partsOf(svc, slices.Collect(maps.Values(all)), node, st.drained, math.MaxInt))
				if !sameFrontends(want, got) {
					t.Fatalf("step %d: frontends %v, want %v", step, got, want)
				}
				if before != nil && st.caches[svc.ServiceName] == before {
					followed++
				}
			}
			if followed < 250 {
				t.Errorf("followed %d times only", followed)
			}
		})
	}
}

// nothing is drained.
func nothing(int) Drained { return Drained{} }

// drainSome drains backends that the Service may have, mostly later, or one of another Service, or a node.
func drainSome(i int) Drained {
	d := Drained{Backends: map[AddrPort]bool{}, Nodes: map[string]bool{}}
	switch i % 4 {
	case 0, 1:
		for slice := range byte(6) {
			for k := range byte(5) {
				d.Backends[AddrPort{netip.AddrFrom4([4]byte{10, 0, slice, k}), 9090, TCP}] = true
			}
		}
	case 2:
		d.Backends[AddrPort{netip.AddrFrom4([4]byte{10, 0, byte(i % 20), byte(i % 5)}), 8080, TCP}] = true
	default:
		d.Nodes[fmt.Sprint("node-", i%3)] = true
	}
	return d
}

// kill has no endpoint of a slice serve in so many of 10 cases, and none be ready unless that is 0.
func kill(rng *rand.Rand, s *Slice, of10 int) {
	dead := rng.IntN(10) < of10
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Ready, e.Serving = e.Ready && of10 == 0, e.Serving && !dead
	}
}

// someSlice returns one of twenty slices with up to five endpoints. Rarely one of
// them is also in another slice.
func someSlice(rng *rand.Rand, p Protocol) *Slice {
	i := rng.IntN(20)
	s := &Slice{SliceName: SliceName{"default", fmt.Sprint("web-", i)}, Service: "web", Ports: []SlicePort{{"http", p, 8080}}}
	if rng.IntN(20) == 0 {
		s.Ports[0].Port = 9090
	}
	for k := range 5 {
		if rng.IntN(4) == 0 {
			continue
		}
		at := i
		if rng.IntN(400) == 0 {
			at = rng.IntN(20)
		}
		e := Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(at), byte(k)}), Ready: rng.IntN(8) > 0, Serving: rng.IntN(8) > 0, Terminating: rng.IntN(4) == 0}
		if rng.IntN(4) == 0 {
			e.Where = Topology{Node: "node-1"}.Share()
		}
		if rng.IntN(200) == 0 {
			e.Weight = 7
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func TestAListThatDoesNotFitItsChangesIsNotEdited(t *testing.T) {
	at := func(n ...byte) (out []AddrPort) {
		for _, i := range n {
			out = append(out, AddrPort{netip.AddrFrom4([4]byte{10, 0, 0, i}), 80, TCP})
		}
		return out
	}
	for _, tc := range []struct {
		name                 string
		list, removed, added []AddrPort
		want                 []AddrPort
		ok                   bool
	}{
		{"nothing", at(1, 2), nil, nil, at(1, 2), true},
		{"the same goes and comes", at(1, 2), at(2), at(2), at(1, 2), true},
		{"first, middle, last", at(1, 3, 5), at(1, 5), at(0, 4, 9), at(0, 3, 4, 9), true},
		{"all go", at(1, 2), at(1, 2), nil, at(), true},
		{"one goes that is not there", at(1, 3), at(2), nil, nil, false},
		{"one goes twice", at(1, 3), at(1, 1), nil, nil, false},
		{"one comes that is there", at(1, 3), nil, at(3), nil, false},
		{"one comes twice", at(1, 3), nil, at(2, 2), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := edited(tc.list, tc.removed, tc.added)
			if ok != tc.ok || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %t, want %v, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}
