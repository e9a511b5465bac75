package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestWhatWasToldIsFoundByBackend(t *testing.T) {
	var all Descriptions
	known := &Told{}
	for i := range 2*inToldPage + 7 {
		d := Description{
			Backend: AddrPort{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(1 + i%2), TCP},
			Service: ServiceName{fmt.Sprint("team-", i%2), fmt.Sprint("service-", i%5)},
			Pod:     PodName{fmt.Sprint("team-", i%2), fmt.Sprint("web-", i)}, Node: fmt.Sprint("node-", i%3), State: StateReady,
		}
		if i%4 == 0 {
			d.Zone = "zone-" + d.Node
		}
		all = append(all, d)
		known.Add(d)
	}
	if got := slices.Collect(known.All()); len(got) != len(all) {
		t.Fatalf("%d are told of, want %d", len(got), len(all))
	}
	for _, want := range all {
		if got := known.Of(want.Backend, want.Service); got == nil || *got != want {
			t.Errorf("%v of %s, want %v", got, want.Backend, want)
		}
		if got := known.At(want.Backend.Addr); got == nil || *got != want {
			t.Errorf("%v of %s, want %v", got, want.Backend.Addr, want)
		}
	}
	if got := known.ZoneOf("node-1"); got != "zone-node-1" {
		t.Errorf("node-1 is in zone %q", got)
	}
	wantNothing(t, "of others", known, "node-9", AddrPort{netip.MustParseAddr("10.0.0.0"), 2, TCP}, AddrPort{netip.MustParseAddr("10.0.9.0"), 1, TCP})
	wantNothing(t, "of one that nobody told", nil, "node-1", all[0].Backend)
}

// wantNothing wants nothing to be known of a node and of backends.
func wantNothing(t *testing.T, what string, known *Told, node string, backends ...AddrPort) {
	t.Helper()
	if zone := known.ZoneOf(node); zone != "" {
		t.Errorf("%s: %s is in zone %q", what, node, zone)
	}
	for _, b := range backends {
		if d := known.Of(b, ServiceName{}); d != nil {
			t.Errorf("%s: %v of %s", what, d, b)
		}
	}
	if d := known.At(netip.MustParseAddr("10.0.200.0")); d != nil {
		t.Errorf("%s: %v of an address", what, d)
	}
}
