package netdev_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// found returns the devices by name, with their addresses.
func found(tb testing.TB, patterns ...string) map[string]string {
	tb.Helper()
	list, err := netdev.Devices(netdev.Patterns{Devices: patterns})
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range list {
		text := func(a netip.Addr) string {
			if !a.IsValid() {
				return "-"
			}
			return a.String()
		}
		out[d.Name] = text(d.IP4) + " " + text(d.IP6)
	}
	return out
}

func mustRoute(tb testing.TB, link netlink.Link, gateway string, metric int) {
	tb.Helper()
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Priority: metric}
	if err := netlink.RouteAdd(route); err != nil {
		tb.Fatalf("route by %s: %v", gateway, err)
	}
}

func TestEveryDeviceWithADefaultRouteIsOne(t *testing.T) {
	testenv.Need(t)
	want := func(what string, want map[string]string, patterns ...string) {
		t.Helper()
		if diff := cmp.Diff(want, found(t, patterns...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("nothing", map[string]string{"(node)": "- -"})
	a := mustAddDevice(t, "up-a")
	b := mustAddDevice(t, "up-b")
	mustAddDevice(t, "other")
	mustAddress(t, netlink.AddrAdd, a, "192.0.2.1/24")
	mustAddress(t, netlink.AddrAdd, b, "198.51.100.1/24")
	mustAddress(t, netlink.AddrAdd, b, "2001:db8::1/64")
	want("without a default route", map[string]string{"(node)": "192.0.2.1 2001:db8::1"})
	want("by name, with the node's addresses where it has none", map[string]string{
		"(node)": "192.0.2.1 2001:db8::1", "up-a": "192.0.2.1 2001:db8::1", "other": "192.0.2.1 2001:db8::1",
	}, "up-a", "oth*")
	mustRoute(t, b, "198.51.100.254", 10)
	want("one uplink", map[string]string{"(node)": "198.51.100.1 2001:db8::1", "up-b": "198.51.100.1 2001:db8::1"})
	mustRoute(t, a, "192.0.2.254", 5)
	want("two", map[string]string{
		"(node)": "192.0.2.1 2001:db8::1", "up-a": "192.0.2.1 2001:db8::1", "up-b": "198.51.100.1 2001:db8::1",
	})
}

func TestAPatternIsWhatADeviceCanBeNamed(t *testing.T) {
	for text, want := range map[string]bool{
		"eth0": true, "eth*": true, "en[op]?s*": true, "vxlan.calico": true, "bond0-15-letter": true, `eth\*`: true, "[a-z][a-z][0-9]*": true,
		"": false, ".": false, "..": false, "eth 0": false, "eth\t0": false, "eth/0": false, "eth0:1": false, "sixteen-letters-": false,
		"eth[0": false, `eth\`: false, "a\u00a0b": false,
	} {
		if got := netdev.IsPattern(text); got != want {
			t.Errorf("%q is a pattern: %v", text, got)
		}
	}
}
