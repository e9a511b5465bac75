package contender

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic"
)

func topology(t *testing.T, name string) traffic.TopologySpec {
	t.Helper()
	spec, err := traffic.BuiltinTopology(name, "x")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestServicesHaveEndpointsOfTheirOwn(t *testing.T) {
	for _, name := range []string{"node", "pair"} {
		for _, spec := range []Spec{{Services: 30_000, Endpoints: 3}, {Services: 30_000, Endpoints: 3, IPv6: true}, {Services: 100, Endpoints: 1000}} {
			services := newServices(topology(t, name), spec)
			nets, seen := netsOf(spec.IPv6), make(map[netip.AddrPort]string)
			for _, s := range services {
				for _, a := range append([]netip.AddrPort{s.Addr}, s.Endpoints...) {
					if other := seen[a]; other != "" {
						t.Fatalf("%s: %s has %s, which %s has too", name, s.name, a, other)
					}
					seen[a] = s.name
				}
				if !nets.services.Contains(s.Addr.Addr()) || !nets.pods.Contains(s.Endpoints[0].Addr()) || len(s.Endpoints) != spec.Endpoints {
					t.Fatalf("%s: %s is at %s with endpoints %v", name, s.name, s.Addr, s.Endpoints)
				}
			}
			if one := services[asked(len(services))]; one.Endpoints[0].Port() != askedPort || services[0].Endpoints[0].Port() != wildcardPort {
				t.Errorf("%s: the asked Service has %v, the first %v", name, one.Endpoints, services[0].Endpoints)
			}
		}
	}
}

func TestEveryServiceIsAskedOnce(t *testing.T) {
	services := newServices(topology(t, "pair"), Spec{Services: 100, Endpoints: 3})
	all := targets(services, false, false)
	seen := make(map[netip.AddrPort]bool)
	for _, a := range all {
		seen[a] = true
	}
	if len(all) != 100 || len(seen) != 100 || all[0] == services[0].Addr && all[1] == services[1].Addr {
		t.Errorf("targets are %v, want each Service once in random order", all)
	}
	if diff := cmp.Diff(services[50].Endpoints, targets(services, true, true), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("targets of the one that is asked, directly (-want +got):\n%s", diff)
	}
}

func TestContendersThatCannotBeAreRefused(t *testing.T) {
	for want, spec := range map[string]Spec{
		`contender "moon": there are direct`:                         {Name: "moon", Topology: "node", Services: 1, Endpoints: 1},
		`0 Services of 1 endpoints`:                                  {Name: Direct, Topology: "node", Endpoints: 1},
		`200 Services of 3000 endpoints: there can be 60000`:         {Name: Direct, Topology: "node", Services: 200, Endpoints: 3_000},
		`1 Services of 6000 endpoints: there can be`:                 {Name: Direct, Topology: "node", Services: 1, Endpoints: 6_000},
		`topology "zones": contenders are compared in node and pair`: {Name: Direct, Topology: "zones", Services: 1, Endpoints: 1},
		`clients of headgate-socket are on the node`:                 {Name: HeadgateSocket, Topology: "pair", Services: 1, Endpoints: 1},
		`clients of headgate-tc come from elsewhere`:                 {Name: HeadgateTC, Topology: "node", Services: 1, Endpoints: 1},
		`bring up nothing, Services 1: contender "nothing": the`:     {Name: "nothing", Topology: "node", Services: 1, Endpoints: 1},
	} {
		err := spec.Validate()
		if strings.HasPrefix(want, "bring up") {
			_, err = Start(t.Context(), spec)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}
