package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

func TestNodePortsAnswerWhereTheConfigurationLetsThem(t *testing.T) {
	ip4, ip6, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("198.51.100.1")
	for _, tc := range []struct {
		name     string
		allow    proxyconfig.NodePorts
		bind     netip.Addr
		loopback bool
		want     map[string]plan.AddressKind
	}{
		{"on every address", proxyconfig.NodePorts{}, netip.Addr{}, false, map[string]plan.AddressKind{
			"192.0.2.1": plan.NodeAddress, "2001:db8::1": plan.NodeAddress, "198.51.100.1": plan.NodeAddress}},
		{"on loopback, too", proxyconfig.NodePorts{CIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00::/8")}}, netip.Addr{}, true, map[string]plan.AddressKind{
			"192.0.2.1": plan.OwnAddress, "2001:db8::1": plan.OwnAddress, "198.51.100.1": plan.NodeAddress, "127.0.0.1": plan.LoopbackAddress, "::1": plan.LoopbackAddress}},
		{"on primary addresses", proxyconfig.NodePorts{Primary: true}, netip.IPv4Unspecified(), false, map[string]plan.AddressKind{
			"198.51.100.1": plan.OwnAddress, "192.0.2.1": plan.NodeAddress, "2001:db8::1": plan.NodeAddress}},
		{"on the primary address that is bound to", proxyconfig.NodePorts{Primary: true}, other, false, map[string]plan.AddressKind{
			"192.0.2.1": plan.OwnAddress, "198.51.100.1": plan.NodeAddress, "2001:db8::1": plan.NodeAddress}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got map[netip.Addr]plan.AddressKind
			n := newNodeAddresses(Config{Common: proxyconfig.Common{NodePorts: tc.allow, BindAddress: tc.bind}, NodePortLoopback: tc.loopback}, func(k map[netip.Addr]plan.AddressKind) { got = k })
			n.setNode(lb.Node{IP4: ip4, IP6: ip6})
			if got != nil {
				t.Errorf("told before the devices were known: %v", got)
			}
			n.setLocal(map[netip.Addr]bool{ip4: true, ip6: true, other: true})
			if diff := cmp.Diff(tc.want, byName(got)); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			got = nil
			n.setNode(lb.Node{IP4: ip4, IP6: ip6})
			if diff := cmp.Diff(tc.want, byName(got)); diff != "" {
				t.Errorf("after the node came again (-want +got):\n%s", diff)
			}
		})
	}
}

func byName(kinds map[netip.Addr]plan.AddressKind) map[string]plan.AddressKind {
	out := map[string]plan.AddressKind{}
	for a, kind := range kinds {
		out[a.String()] = kind
	}
	return out
}
