package lb

import (
	"net/netip"
	"testing"
)

func TestTheFamilyOfAnAddressIsNamedAsKubernetesNamesIt(t *testing.T) {
	for addr, want := range map[string]Family{"10.0.0.1": "IPv4", "fd00::1": "IPv6", "::ffff:10.0.0.1": "IPv6"} {
		if got := FamilyOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("FamilyOf(%s) = %s, want %s", addr, got, want)
		}
	}
}
