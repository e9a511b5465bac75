package netdev_test

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// mustFilter sets how a device filters by reverse paths until the test ends.
func mustFilter(t *testing.T, device, value string) {
	t.Helper()
	file := "/proc/sys/net/ipv4/conf/" + device + "/rp_filter"
	was, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(value), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, was, 0); err != nil {
			t.Error(err)
		}
	})
}

// mustAdd adds a device with an address until the test ends.
func mustAdd(t *testing.T, l netlink.Link, address string) {
	t.Helper()
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(24, 32)}, Flags: unix.IFA_F_NODAD}
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(l); err != nil {
			t.Error(err)
		}
	})
	if err := netlink.AddrAdd(l, addr); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// A tunnel drops what comes of clients outside where its filter is strict, and they are answered by
// another device.
func TestATunnelThatFiltersIsFound(t *testing.T) {
	testenv.Need(t)
	for name, c := range map[string]struct{ all, own, out, want string }{
		"strict":                  {"0", "1", "hg-up", "hg-tunnel"},
		"strict, all devices":     {"1", "0", "hg-up", "hg-tunnel"},
		"loose":                   {"0", "2", "hg-up", ""},
		"loose, all are strict":   {"1", "2", "hg-up", ""},
		"strict, all are loose":   {"2", "1", "hg-up", ""},
		"none":                    {"0", "0", "hg-up", ""},
		"strict, all goes by it":  {"0", "1", "hg-tunnel", ""},
		"strict, no way anywhere": {"0", "1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			links := map[string]netlink.Link{
				"hg-up":     &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-up"}, PeerName: "hg-up-peer"},
				"hg-tunnel": &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "hg-tunnel"}, VxlanId: 7, Port: 4789},
			}
			mustAdd(t, links["hg-up"], "192.0.2.1")
			mustAdd(t, links["hg-tunnel"], "172.31.0.1")
			for device, value := range map[string]string{"all": c.all, "hg-up": "0", "hg-tunnel": c.own} {
				mustFilter(t, device, value)
			}
			if c.out != "" {
				mustRoute(t, links[c.out], map[string]string{"hg-up": "192.0.2.254", "hg-tunnel": "172.31.0.254"}[c.out], 0)
			}
			if got := netdev.FilteredTunnel(netip.MustParseAddr("172.31.0.1")); got != c.want {
				t.Errorf("%q is found, want %q", got, c.want)
			}
			if got := netdev.FilteredTunnel(netip.MustParseAddr("192.0.2.1")); got != "" {
				t.Errorf("%q is no tunnel", got)
			}
		})
	}
}
