package netdev

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// strict is the filter of reverse paths that drops what comes by another device than the one by
// which its sender would be answered (RFC 3704).
const strict = "1"

// elsewhere is an address that nobody has (RFC 5737): it stands for clients outside.
var elsewhere = net.IPv4(198, 51, 100, 1)

// FilteredTunnel returns the tunnel that has an address and drops what comes over IPv4 from clients
// outside, as its filter of reverse paths is strict and they are answered by another device; ""
// where there is none.
func FilteredTunnel(at netip.Addr) string {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if !a.IP.Equal(at.AsSlice()) {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err == nil && slices.Contains(tunnels, l.Type()) && isStrict(l.Attrs().Name) && !answersBy(l) {
			return l.Attrs().Name
		}
	}
	return ""
}

// isStrict says how a device filters: the greater of both settings counts, and 2 is loose.
func isStrict(device string) bool {
	return max(filterOf("all"), filterOf(device)) == strict
}

// filterOf is a setting, "" where the device is gone.
func filterOf(device string) string {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", device, "rp_filter"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// answersBy says whether clients outside are answered by a device, as far as there is a way to them.
func answersBy(l netlink.Link) bool {
	routes, err := netlink.RouteGet(elsewhere)
	return err != nil || slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.LinkIndex == l.Attrs().Index })
}
