package lb

import (
	"math"
	"strings"
	"testing"
)

// zoned is one endpoint on this node, one in its zone and two elsewhere.
const zoned = `10.0.0.1 ready on=node-1 zone=zone-a; 10.0.0.2 ready on=node-2 zone=zone-a
	10.0.0.3 ready on=node-3 zone=zone-b; 10.0.0.4 ready on=node-4 zone=zone-b`

func TestZonePoliciesPreferTheNearest(t *testing.T) {
	for _, tc := range []struct {
		policy    ZonePolicy
		node      Node
		endpoints string
		cluster   string
		why       Why
		zone, all string // fallbacks
	}{
		{ZonePreferNode, here, zoned, "10.0.0.1", WhyPreferredNode, "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4"},
		{ZonePreferZone, here, zoned, "10.0.0.1 10.0.0.2", WhyPreferredZone, "", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4"},
		{ZonePreferNode, Node{Name: "node-9", Zone: "zone-b"}, zoned, "10.0.0.3 10.0.0.4", WhyPreferredZone, "", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4"},
		{ZonePreferZone, Node{Name: "node-9", Zone: "zone-c"}, zoned, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", WhyNothingNearer, "", ""},
		{ZonePreferZone, Node{Name: "node-9"}, zoned, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", WhyNothingNearer, "", ""},
		{ZonePreferNode, here, "10.0.0.1 serving terminating on=node-1 zone=zone-a; 10.0.0.2 ready on=node-2 zone=zone-b", "10.0.0.2", WhyNothingNearer, "", ""},
		{ZonePreferNode, here, "10.0.0.1 serving terminating on=node-1 zone=zone-a; 10.0.0.2 serving terminating on=node-2 zone=zone-b", "10.0.0.1", WhyPreferredNode, "", "10.0.0.1 10.0.0.2"},
		{ZonePreferZone, here, "10.0.0.1 unready on=node-1 zone=zone-a", "", WhyNothingNearer, "", ""},
	} {
		t.Run(tc.policy.String()+" "+tc.node.Name+" "+tc.cluster, func(t *testing.T) {
			svc := webService()
			svc.Zones = tc.policy
			all := merge([]*Slice{mustSlice(t, "1", tc.endpoints)}, svc.Ports[0], svc.ClusterIPs[0])
			s := selectEndpoints(all, svc, svc.Ports[0], tc.node)
			mustDiff(t, []string{tc.cluster, tc.zone, tc.all}, []string{hosts(s.cluster), hosts(s.fallbackZone.Backends), hosts(s.fallbackAll.Backends)})
			if s.clusterWhy != tc.why {
				t.Errorf("why: %q, want %q", s.clusterWhy, tc.why)
			}
		})
	}
}

func TestOnlyAZoneWithTooFewEndpointsSpills(t *testing.T) {
	for _, tc := range []struct {
		name, endpoints string
		toAll           float64 // share of the clients
	}{
		{"its part", zoned, 0},
		// A quarter of the endpoints for half of the clients: two thirds of them go
		// to all, of whom a quarter comes back, which makes a half.
		{"half of its part", `10.0.0.1 ready zone=zone-a; 10.0.0.2 ready zone=zone-b; 10.0.0.3 ready zone=zone-b; 10.0.0.4 ready zone=zone-b`, (1 - 0.5) / (1 - 0.25)},
		{"more than its part", `10.0.0.1 ready zone=zone-a; 10.0.0.2 ready zone=zone-a; 10.0.0.3 ready zone=zone-b`, 0},
		{"nothing", `10.0.0.2 ready zone=zone-b`, 0},
		{"everything", `10.0.0.2 ready zone=zone-a`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc := webService()
			svc.Zones = ZoneSpill
			all := merge([]*Slice{mustSlice(t, "1", tc.endpoints)}, svc.Ports[0], svc.ClusterIPs[0])
			s := selectEndpoints(all, svc, svc.Ports[0], here)
			if got := float64(s.spill) / math.MaxUint32; math.Abs(got-tc.toAll) > 1e-6 {
				t.Errorf("%.4f of the clients go to all, want %.4f", got, tc.toAll)
			}
			if tc.toAll == 0 {
				return
			}
			// What the zone itself gets is its part of the endpoints, counted in
			// what all zones have together.
			own, part := 1-tc.toAll+tc.toAll/4, 0.25/0.5
			if math.Abs(own-part) > 1e-6 {
				t.Errorf("the zone takes %.4f of its clients, want %.4f", own, part)
			}
		})
	}
}

func TestWhyHintsAreFollowedOrIgnored(t *testing.T) {
	for _, tc := range []struct {
		node      Node
		endpoints string
		why       Why
	}{
		{here, "10.0.0.1 ready; 10.0.0.2 ready", WhyAll},
		{here, "10.0.0.1 ready zones=zone-a; 10.0.0.2 ready zones=zone-b", WhyZoneHints},
		{here, "10.0.0.1 ready nodes=node-1; 10.0.0.2 ready nodes=node-2", WhyNodeHints},
		{here, "10.0.0.1 ready zones=zone-a; 10.0.0.2 ready", WhyHintsMissing},
		{here, "10.0.0.1 ready zones=zone-b; 10.0.0.2 ready zones=zone-c", WhyHintsOthers},
		{Node{Name: "node-1"}, "10.0.0.1 ready zones=zone-b", WhyNoZone},
		{here, "10.0.0.1 serving terminating", WhyTerminating},
		{here, "10.0.0.1 unready", WhyNone},
	} {
		svc := webService()
		all := merge([]*Slice{mustSlice(t, "1", tc.endpoints)}, svc.Ports[0], svc.ClusterIPs[0])
		s := selectEndpoints(all, svc, svc.Ports[0], tc.node)
		if got := s.view(PolicyCluster).Why; got != tc.why {
			t.Errorf("%s: %q, want %q", strings.Join(strings.Fields(tc.endpoints), " "), got, tc.why)
		}
	}
}

// webService is a Service with one port and one address.
func webService() *Service {
	return &Service{
		ServiceName: ServiceName{"default", "web"}, ClusterIPs: addrs("10.96.0.1"),
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
	}
}
