package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameFrontends says whether two results are equal, in order too.
func sameFrontends(a, b []Frontend) bool {
	return cmp.Equal(a, b, cmpopts.EquateComparable(netip.Addr{}))
}

// randomEndpoint draws from few addresses, nodes and zones, so that they meet.
func randomEndpoint(rng *rand.Rand) Endpoint {
	hints := func(kind string) Names {
		var all []string
		for i := range rng.IntN(3) {
			all = append(all, fmt.Sprintf("%s-%c", kind, "ab1"[(i+rng.IntN(3))%3]))
		}
		return Names(strings.Join(all, ","))
	}
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(12))})
	if rng.IntN(3) == 0 {
		addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rng.IntN(8))})
	}
	return Endpoint{
		Addr: addr, Ready: rng.IntN(3) == 0, Serving: rng.IntN(2) == 0, Terminating: rng.IntN(2) == 0,
		Where: Topology{
			Node:      []string{"", "node-1", "node-2"}[rng.IntN(3)],
			ZoneHints: hints("zone"), NodeHints: hints("node"),
		}.Share(),
	}
}

// randomSlice returns a slice of one of the Services, on one or both ports.
func randomSlice(rng *rand.Rand, name, service string) *Slice {
	s := &Slice{SliceName: SliceName{"default", name}, Service: service}
	s.Ports = []SlicePort{{"http", TCP, 8080}, {"dns", UDP, uint16(5353 + rng.IntN(2))}}[:1+rng.IntN(2)]
	for range rng.IntN(8) {
		s.Endpoints = append(s.Endpoints, randomEndpoint(rng))
	}
	return s
}

// randomService returns a Service with some of everything.
func randomService(rng *rand.Rand, name string) *Service {
	some := func(text string) []netip.Addr { return addrs(text)[:rng.IntN(3)] }
	return &Service{
		ServiceName: ServiceName{"default", name},
		ClusterIPs:  addrs("172.16.0.1 fd01::1")[:1+rng.IntN(2)],
		ExternalIPs: some("198.51.100.1 2001:db8::1"), LoadBalancerIPs: some("198.51.100.1 2001:db8::2"),
		InternalPolicy: TrafficPolicy(rng.IntN(2)), ExternalPolicy: TrafficPolicy(rng.IntN(2)),
		Ports: []ServicePort{{"http", TCP, 80, uint16(rng.IntN(2)) * 30080}, {"dns", UDP, 53, 0}},
	}
}

// drawn is a random Service with its slices and a node.
func drawn(rng *rand.Rand) (*Service, []*Slice, Node) {
	var from []*Slice
	for i := range rng.IntN(4) {
		from = append(from, randomSlice(rng, fmt.Sprint("web-", i), "web"))
	}
	node := Node{Name: []string{"", "node-1"}[rng.IntN(2)], Zone: []string{"", "zone-a"}[rng.IntN(2)]}
	return randomService(rng, "web"), from, node
}

func TestFrontendsDoNotDependOnOrder(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		svc, from, node := drawn(rng)
		want := Frontends(svc, from, node)
		shuffled := *svc
		shuffled.ClusterIPs = slices.Clone(svc.ClusterIPs)
		slices.Reverse(shuffled.ClusterIPs)
		rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		for _, s := range from {
			e := s.Endpoints
			rng.Shuffle(len(e), func(i, j int) { e[i], e[j] = e[j], e[i] })
		}
		if !sameFrontends(want, Frontends(&shuffled, from, node)) {
			t.Fatalf("seed %d: the order of slices, endpoints or families shows", seed)
		}
	}
}

func TestFrontendsArePlausible(t *testing.T) {
	for seed := range uint64(2000) {
		svc, from, node := drawn(rand.New(rand.NewPCG(seed, 2)))
		all := Frontends(svc, from, node)
		if !slices.IsSortedFunc(all, func(a, b Frontend) int { return a.Compare(b.AddrPort) }) {
			t.Fatalf("seed %d: frontends out of order", seed)
		}
		for i, f := range all {
			if i > 0 && all[i-1].AddrPort == f.AddrPort {
				t.Fatalf("seed %d: %s is there twice", seed, f.AddrPort)
			}
			for _, v := range f.Views[:FallbackZone] {
				if err := checkView(svc, f, v, from); err != nil {
					t.Fatalf("seed %d: %s: %v", seed, f.AddrPort, err)
				}
			}
		}
	}
}

// checkView says what no view may be, whatever the input.
func checkView(svc *Service, f Frontend, v View, from []*Slice) error {
	given := givenBackends(f, from)
	for i, b := range v.Backends {
		switch {
		case i > 0 && v.Backends[i-1].Compare(b) >= 0:
			return fmt.Errorf("backends out of order or twice: %v", v.Backends)
		case !given[b]:
			return fmt.Errorf("backend %s is no usable endpoint of the port and family", b)
		}
	}
	switch empty := len(v.Backends) == 0; {
	case v.NoLocal && (!empty || len(given) == 0):
		return fmt.Errorf("no-local with %d backends, %d given", len(v.Backends), len(given))
	case v.NoLocal && svc.InternalPolicy == PolicyCluster && svc.ExternalPolicy == PolicyCluster:
		return fmt.Errorf("no-local without policy Local")
	case empty && !v.NoLocal && len(given) > 0:
		return fmt.Errorf("nothing of %d given, and no reason", len(given))
	}
	return nil
}

// givenBackends is the endpoints behind a frontend that are ready or draining,
// those set aside that a better duplicate contradicts.
func givenBackends(f Frontend, from []*Slice) map[AddrPort]bool {
	given := map[AddrPort]bool{}
	best := map[AddrPort]*Endpoint{}
	for _, s := range from {
		for _, p := range s.Ports {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				b := AddrPort{e.Addr, p.Port, p.Protocol}
				if p.Name == f.Port && e.Addr.Is4() == f.Addr.Is4() && (best[b] == nil || preferred(e, best[b]) < 0) {
					best[b] = e
				}
			}
		}
	}
	for b, e := range best {
		if e.Ready || e.Serving && e.Terminating {
			given[b] = true
		}
	}
	return given
}
