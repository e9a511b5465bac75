package netdev

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is a network device with the addresses that packets leave it with:
// the first of each family, the zero Addr for none.
type Device struct {
	Index    int
	Name     string
	IP4, IP6 netip.Addr
}

// tunnels are the types of devices that lead to other nodes, of those with an
// Ethernet header: the programs read no others.
var tunnels = []string{"vxlan", "geneve", "gretap", "ip6gretap"}

// Devices returns the devices, of the network namespace of the calling thread,
// on which others reach the node, sorted by index. With patterns, as of
// path.Match, these are the ones whose name matches one; without, those that a
// default route goes by, and tunnels. A device without an address is left out.
func Devices(patterns []string) ([]Device, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	uplinks, err := defaultRouteDevices()
	if err != nil {
		return nil, err
	}
	var out []Device
	for _, l := range links {
		a := l.Attrs()
		if len(patterns) > 0 && !matchesAny(patterns, a.Name) || len(patterns) == 0 && !uplinks[a.Index] && !slices.Contains(tunnels, l.Type()) {
			continue
		}
		d, err := withAddresses(l)
		if err != nil {
			return nil, err
		}
		if d.IP4.IsValid() || d.IP6.IsValid() {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return a.Index - b.Index })
	return out, nil
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// defaultRouteDevices returns the indexes of devices that a default route of
// either family goes by.
func defaultRouteDevices() (map[int]bool, error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	out := map[int]bool{}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		if r.LinkIndex > 0 {
			out[r.LinkIndex] = true
		}
		for _, hop := range r.MultiPath {
			out[hop.LinkIndex] = true
		}
	}
	return out, nil
}

// withAddresses returns a device with its first addresses.
func withAddresses(l netlink.Link) (Device, error) {
	d := Device{Index: l.Attrs().Index, Name: l.Attrs().Name}
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return d, fmt.Errorf("list addresses of %s: %w", d.Name, err)
	}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); !ok || !isReachable(addr) || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DEPRECATED) != 0 {
			continue
		}
		if addr.Is4() && !d.IP4.IsValid() {
			d.IP4 = addr
		}
		if addr.Is6() && !d.IP6.IsValid() {
			d.IP6 = addr
		}
	}
	return d, nil
}
