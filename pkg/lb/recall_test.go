package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// started returns a State that knows some slices of a Service, and recalls its frontends.
func started(svc *Service, from []*Slice, node Node, had []Frontend) *State {
	st := NewState()
	u := Update{Services: map[ServiceName]*Service{svc.ServiceName: svc}, Slices: map[SliceName]*Slice{}, Node: &node}
	for _, s := range from {
		u.Slices[s.SliceName] = s
	}
	st.Apply(u)
	st.Recall(svc.ServiceName, had)
	return st
}

// withZones gives random endpoints zones and weights, has the ready ones serve, and gives
// each address to the first slice that has it. Some terminate where nothing else sets them
// aside, and hints are for zones or for nodes: the maps do not tell which of both it was. Weights
// are where a view of all endpoints relates them.
func withZones(rng *rand.Rand, from []*Slice, zones ZonePolicy) []*Slice {
	seen, terminate, nodes := map[netip.Addr]bool{}, zones == ZoneHints && rng.IntN(2) == 0, rng.IntN(2) == 0
	for _, s := range from {
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e Endpoint) bool {
			again := seen[e.Addr]
			seen[e.Addr] = true
			return again
		})
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			where := e.Where.Topology()
			if where.Zone = []string{"zone-a", "zone-b"}[rng.IntN(2)]; where.Node == "node-1" {
				where.Zone = "zone-a"
			}
			if e.Terminating = e.Terminating && terminate; terminate || nodes {
				where.ZoneHints = ""
			}
			if terminate || !nodes {
				where.NodeHints = ""
			}
			e.Where = where.Share()
			e.Serving = e.Serving || e.Ready
			if e.Drained = rng.IntN(8) == 0; zones != ZoneHints {
				e.Weight = uint32(rng.IntN(3))
			}
		}
	}
	return from
}

// What leaves a slice that can be read is gone, whatever else cannot be.
func TestWhatStoodInASliceIsNotRecalled(t *testing.T) {
	svc := &Service{ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), Ports: []ServicePort{{"http", TCP, 80, 0}}}
	both := []*Slice{mustSlice(t, "1", "10.0.0.1 ready; 10.0.0.2 ready"), mustSlice(t, "2", "10.0.0.3 ready")}
	st := started(svc, both[:1], here, Frontends(svc, both, here))
	mustDiff(t, "10.0.0.1 10.0.0.2 10.0.0.3", hosts(st.Frontends(webName)[0].Members))
	st.Apply(Update{Slices: map[SliceName]*Slice{web("1"): mustSlice(t, "1", "10.0.0.2 ready; 10.0.0.4 ready")}})
	mustDiff(t, "10.0.0.2 10.0.0.3 10.0.0.4", hosts(st.Frontends(webName)[0].Members))
	st.Forget(webName)
	mustDiff(t, "10.0.0.2 10.0.0.4", hosts(st.Frontends(webName)[0].Members))
}

// Load balancers and other tenants see what is recalled as what it was.
func TestWhatIsRecalledCountsAsEndpoints(t *testing.T) {
	svc := &Service{ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), LoadBalancerIPs: addrs("198.51.100.1"), ExternalPolicy: PolicyLocal,
		HealthCheckNodePort: 30000, Ports: []ServicePort{{"http", TCP, 80, 0}}}
	had := Frontends(svc, []*Slice{mustSlice(t, "1", "10.0.0.1 ready on=node-1; 10.0.0.2 ready on=node-2")}, here)
	st := started(svc, nil, here, had)
	mustDiff(t, 1, st.TakeHealthChecks(served)[webName].LocalEndpoints)
	thief := ServiceName{"other", "thief"}
	st.Apply(Update{Services: map[ServiceName]*Service{thief: {ServiceName: thief, ClusterIPs: addrs("172.16.0.9"),
		ExternalIPs: addrs("10.0.0.2"), Ports: []ServicePort{{"http", TCP, 80, 0}}}}})
	mustDiff(t, 1, len(st.Frontends(thief)))
	mustDiff(t, []ServiceName{thief}, st.Forget(webName))
	mustDiff(t, 2, len(st.Frontends(thief)))
	mustDiff(t, 0, st.TakeHealthChecks(served)[webName].LocalEndpoints)
}

// Whichever slices cannot be read: with the others as they were, all views stay as they
// were. Why hints are ignored is not known of those that cannot be read.
func TestWhatIsRecalledChangesNoFrontend(t *testing.T) {
	text := func(all []Frontend) (lines []string) {
		for _, f := range all {
			for i := range f.Views {
				if why := &f.Views[i].Why; *why == WhyHintsMissing || *why == WhyHintsOthers || *why == WhyNoZone {
					*why = WhyAll
				}
			}
			lines = append(lines, fmt.Sprintf("%v: members %v, spill %d, views %+v", f.AddrPort, f.Members, f.Spill, f.Views))
		}
		return lines
	}
	for seed := range uint64(8000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		svc, from, node := drawn(rng)
		svc.Zones = ZonePolicy(rng.IntN(4))
		svc.Forwarding = Forwarding(seed % 3)
		from = withZones(rng, from, svc.Zones)
		had := Frontends(svc, from, node)
		good := slices.DeleteFunc(slices.Clone(from), func(*Slice) bool { return rng.IntN(2) == 0 })
		got := started(svc, good, node, had).Frontends(svc.ServiceName)
		if d := cmp.Diff(text(had), text(got)); d != "" {
			t.Fatalf("seed %d, %d of %d slices, zone policy %v:\n%s", seed, len(good), len(from), svc.Zones, d)
		}
	}
}
