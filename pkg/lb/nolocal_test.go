package lb

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServicePortsWithoutLocalEndpointsAreCountedOnce(t *testing.T) {
	at := func(addr string, port uint16) AddrPort {
		return AddrPort{Addr: netip.MustParseAddr(addr), Port: port, Protocol: TCP}
	}
	none := View{NoLocal: true}
	frontends := []Frontend{
		{AddrPort: at("10.96.0.1", 80), Port: "http", Views: [NumViews]View{Internal: none, External: none}},
		{AddrPort: at("10.96.0.1", 443), Port: "https"},
		{AddrPort: at("fd00:96::1", 80), Port: "http", Views: [NumViews]View{Internal: none, External: none}},
		{AddrPort: at("0.0.0.0", 30080), Kind: NodePort, Port: "http", Views: [NumViews]View{External: none}},
		{AddrPort: at("203.0.113.1", 80), Kind: LoadBalancerIP, Port: "http", Views: [NumViews]View{External: none}},
		{AddrPort: at("203.0.113.1", 443), Kind: LoadBalancerIP, Port: "https", Views: [NumViews]View{External: none}},
	}
	want := map[Family]NoLocal{IPv4: {Internal: 1, External: 2}, IPv6: {Internal: 1}}
	if diff := cmp.Diff(want, CountNoLocal(frontends)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
