package cli

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
)

func TestAClientOnThisNodeIsItsNetworkNamespace(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.9": "192.0.2.9", "2001:db8::1": "2001:db8::1",
		// As little-endian machines, which are all that we build for, have local_client of C.
		"ffff:ffff:400::8010:0": "network namespace 4224", "ffff:ffff:600:0:100:0:8010:0": "network namespace 4294971520",
		"ffff:ffff:400::700:0": "this node", "ffff:ffff:400::8110:0": "pod 10.244.1.9",
	} {
		if got := clientName(datapath.Affinity{Client: netip.MustParseAddr(addr)}, 7, &podAddresses{all: map[uint64]netip.Addr{4225: netip.MustParseAddr("10.244.1.9")}}); got != want {
			t.Errorf("%s is shown as %q, want %q", addr, got, want)
		}
	}
}
