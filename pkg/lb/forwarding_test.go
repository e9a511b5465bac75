package lb

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A packet may come in at any node, and the next one at another.
func TestEveryNodeHasTheSameExternalViewOfWhatIsCarried(t *testing.T) {
	carried := 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		svc, from, node := drawn(rng)
		svc.Zones = ZonePolicy(rng.IntN(4))
		svc.Forwarding = Forwarding(1 + seed%2)
		here := Frontends(svc, withZones(rng, from, svc.Zones), node)
		elsewhere := Frontends(svc, from, Node{Name: "node-2", Zone: "zone-b"})
		for i, f := range here {
			if f.Carried != svc.Carries(f.Kind, f.Protocol) {
				t.Fatalf("seed %d: %s is carried: %v", seed, f.AddrPort, f.Carried)
			}
			if !f.Carried {
				continue
			}
			carried++
			mustDiff(t, f.Views[External], elsewhere[i].Views[External])
			mustDiff(t, f.Homes, elsewhere[i].Homes)
			if f.Views[External].FallsBack || !f.Algorithm.Hashed() {
				t.Fatalf("seed %d: %s falls back: %v, by algorithm %s", seed, f.AddrPort, f.Views[External].FallsBack, f.Algorithm)
			}
		}
	}
	if carried < 1000 {
		t.Errorf("%d frontends are carried, too few to say anything", carried)
	}
}

func TestWhatIsCarried(t *testing.T) {
	everything := []FrontendKind{ClusterIP, LoadBalancerIP, ExternalIP}
	for _, tc := range []struct {
		name   string
		change func(*Service)
		want   []FrontendKind
	}{
		{"by default nothing", func(s *Service) { s.Forwarding = ForwardingDefault }, nil},
		{"snat", func(s *Service) { s.Forwarding = SNAT }, nil},
		{"dsr", func(*Service) {}, everything},
		{"an algorithm for hashes", func(s *Service) { s.Algorithm = Maglev }, everything},
		{"another algorithm", func(s *Service) { s.Algorithm = RR }, nil},
		{"external policy Local", func(s *Service) { s.ExternalPolicy = PolicyLocal }, []FrontendKind{ClusterIP}},
		{"internal policy Local", func(s *Service) { s.InternalPolicy = PolicyLocal }, []FrontendKind{LoadBalancerIP, ExternalIP}},
		{"SCTP", func(s *Service) { s.Ports[0].Protocol = SCTP }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := &Service{
				ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), LoadBalancerIPs: addrs("198.51.100.1"), ExternalIPs: addrs("198.51.100.2"),
				Ports: []ServicePort{{"http", TCP, 80, 30080}}, Policy: Policy{Forwarding: DSR},
			}
			tc.change(svc)
			var got []FrontendKind
			for _, f := range Frontends(svc, nil, here) {
				if f.Carried {
					got = append(got, f.Kind)
				}
			}
			slices.Sort(got)
			mustDiff(t, tc.want, got)
		})
	}
}

func TestHowACarriedFrontendChooses(t *testing.T) {
	for _, tc := range []struct {
		algorithm, want, external Algorithm
		affinity                  uint32
	}{
		{AlgorithmDefault, Stable, AlgorithmDefault, 0},
		{Maglev, Maglev, AlgorithmDefault, 0},
		{DH, DH, AlgorithmDefault, 0},
		{AlgorithmDefault, Stable, SH, 600},
		{Maglev, Maglev, SH, 600},
	} {
		svc := &Service{ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), Ports: []ServicePort{{"http", TCP, 80, 0}}, Policy: Policy{Forwarding: DSR, Algorithm: tc.algorithm}}
		svc.AffinityTimeout = tc.affinity
		f := Frontends(svc, []*Slice{mustSlice(t, "1", "10.0.0.1 ready on=node-1; 10.0.0.2 ready")}, here)[0]
		if f.Algorithm != tc.want || f.ExternalAlgorithm != tc.external || f.AffinityTimeout != tc.affinity {
			t.Errorf("algorithm %q with affinity %d: %s, external %q, affinity %d, want %s, %q", tc.algorithm, tc.affinity, f.Algorithm, f.ExternalAlgorithm, f.AffinityTimeout, tc.want, tc.external)
		}
		if len(f.Homes) != 1 || f.Homes[f.Members[0]] != "node-1" {
			t.Errorf("homes %v, want node-1 for the first backend", f.Homes)
		}
	}
}
