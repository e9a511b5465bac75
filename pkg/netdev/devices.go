package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is a network device that programs belong on, with the addresses that
// packets leave it with: one of each family, the zero Addr for none. Index 0 is
// the node itself, with the addresses by which it reaches whom it has no special
// route to.
type Device struct {
	Index    int
	Name     string
	IP4, IP6 netip.Addr
	L3       bool   // packets have no Ethernet header
	XDP      bool   // a program belongs in its driver, too
	NoXDP    string // why it cannot be there, though that is asked for
	Veth     bool   // and that wakes nobody for what goes back by the device
	Pod      string // whose device this is the node's end of, "" for none's
	// PodAddr is an address of the pod whose sockets are to be left alone, the
	// zero Addr where there is none.
	PodAddr netip.Addr
}

// nodeName is the name of the device that is the node itself.
const nodeName = "(node)"

// tunnels are the types of devices that lead to other nodes.
var tunnels = []string{"vxlan", "geneve", "gretap", "ip6gretap", "wireguard", "ipip", "ip6tnl", "sit", "gre", "ip6gre"}

// withEthernet are the kinds of devices, as of ARPHRD_…, whose packets have an
// Ethernet header.
var withEthernet = []string{"ether", "loopback"}

// Patterns are patterns of names of devices, as of path.Match.
type Patterns struct {
	// Devices are those on which others reach the node; none: those that a default route
	// goes by, and tunnels that are up.
	Devices []string
	// XDP are those of them whose driver is to have a program, AutoXDP, or none.
	XDP []string
}

// Devices returns the devices, of the network namespace of the calling thread,
// on which others reach the node, sorted by index, and before them the node
// itself.
//
// A device without an address of a family leaves with one that the node has
// elsewhere, as the kernel's masquerading does.
func Devices(patterns Patterns) ([]Device, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	uplinks, err := defaultRouteDevices()
	if err != nil {
		return nil, err
	}
	node, err := node()
	if err != nil {
		return nil, err
	}
	out := []Device{node}
	for _, l := range links {
		if !isChosen(l, patterns.Devices, uplinks) {
			continue
		}
		d, err := withAddresses(l)
		if err != nil {
			return nil, err
		}
		d.chooseXDP(l, links, patterns.XDP)
		out = append(out, d.orOf(node))
	}
	slices.SortFunc(out, func(a, b Device) int { return a.Index - b.Index })
	return out, nil
}

// isChosen says whether a device is one on which others reach the node.
func isChosen(l netlink.Link, patterns []string, uplinks map[int]bool) bool {
	a := l.Attrs()
	if len(patterns) > 0 {
		return matchesAny(patterns, a.Name)
	}
	return uplinks[a.Index] || slices.Contains(tunnels, l.Type()) && a.Flags&net.FlagUp != 0
}

// IsPattern says whether a text is the name of a device, or a pattern of some.
func IsPattern(text string) bool {
	_, err := path.Match(text, "")
	plain := !strings.ContainsAny(text, `*?[\`)
	if err != nil || plain && (text == "" || text == "." || text == ".." || len(text) >= unix.IFNAMSIZ) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }) // as the kernel has it
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
	d := Device{Index: l.Attrs().Index, Name: l.Attrs().Name, L3: !slices.Contains(withEthernet, l.Attrs().EncapType)}
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return d, fmt.Errorf("list addresses of %s: %w", d.Name, err)
	}
	d.IP4, d.IP6 = first(list)
	return d, nil
}

// first returns the first address of each family that others may be sent to.
func first(list []netlink.Addr) (ip4, ip6 netip.Addr) {
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); !ok || !isReachable(addr) || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DEPRECATED) != 0 {
			continue
		}
		if addr.Is4() && !ip4.IsValid() {
			ip4 = addr
		}
		if addr.Is6() && !ip6.IsValid() {
			ip6 = addr
		}
	}
	return ip4, ip6
}

// orOf returns the device with the addresses of another where it has none.
func (d Device) orOf(other Device) Device {
	if !d.IP4.IsValid() {
		d.IP4 = other.IP4
	}
	if !d.IP6.IsValid() {
		d.IP6 = other.IP6
	}
	return d
}

// anywhere are addresses that nodes have no special route to.
var anywhere = []netip.Addr{netip.MustParseAddr("192.88.99.1"), netip.MustParseAddr("2001:4860::1")}

// node returns the node itself: the addresses that its routes give to packets
// to anywhere, or without such a route the first that it has.
func node() (Device, error) {
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return Device{}, fmt.Errorf("list addresses: %w", err)
	}
	slices.SortStableFunc(list, func(a, b netlink.Addr) int { return a.LinkIndex - b.LinkIndex })
	out := Device{Name: nodeName}
	out.IP4, out.IP6 = first(list)
	for _, to := range anywhere {
		src, err := sourceFor(to)
		if err != nil || !isReachable(src) {
			continue // no route
		}
		if src.Is4() {
			out.IP4 = src
		} else {
			out.IP6 = src
		}
	}
	return out, nil
}

// sourceFor returns the address that a packet of the node to another has.
func sourceFor(to netip.Addr) (netip.Addr, error) {
	r, err := routeTo(to)
	if err != nil {
		return netip.Addr{}, err
	}
	src, _ := netip.AddrFromSlice(r.Src)
	return src.Unmap(), nil
}

// LeavesBy returns the index of the device by which the node's packets to an address leave.
func LeavesBy(to netip.Addr) (uint32, error) {
	r, err := routeTo(to)
	if err != nil {
		return 0, err
	}
	return uint32(r.LinkIndex), nil
}

func routeTo(to netip.Addr) (netlink.Route, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return netlink.Route{}, fmt.Errorf("find the route to %s: %w", to, err)
	}
	return routes[0], nil
}
