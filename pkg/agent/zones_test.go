package agent

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
)

func TestABackendIsInTheZoneOnlyWhereThatIsKnown(t *testing.T) {
	at := func(last byte) lb.AddrPort {
		return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 244, 0, last}), Port: 8080, Protocol: lb.TCP}
	}
	said := lb.Descriptions{{Backend: at(1), Zone: "zone-a"}, {Backend: at(2), Zone: "zone-b"}, {Backend: at(3)}}
	all := []metrics.Backend{{Backend: at(1)}, {Backend: at(2)}, {Backend: at(3)}, {Backend: at(4)}, {Backend: at(1), Port: "another"}}
	markInZone(all, said, "zone-a")
	for i, want := range []*bool{new(true), new(false), nil, nil, new(true)} {
		switch got := all[i].InZone; {
		case (got == nil) != (want == nil):
			t.Errorf("of %s it is known: %v, want %v", all[i].Backend, got != nil, want != nil)
		case got != nil && *got != *want:
			t.Errorf("%s is in the zone: %v, want %v", all[i].Backend, *got, *want)
		}
	}
}
