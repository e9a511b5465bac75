package netdev

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"sort"
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
	Trunk    bool   // VLAN devices on it are chosen, too
	Shared   bool   // backends on this node are reached by it
	Down     bool   // its link is down, or has no carrier
	XDP      bool   // a program belongs in its driver, too
	NoXDP    string // why it cannot be there, though that is asked for
	Veth     bool   // and that wakes nobody for what goes back by the device
	Pod      string // whose device this is the node's end of, "" for none's
	// Netns is the cookie of the network namespace behind the device, if its sockets are to be
	// left alone; 0 for none.
	Netns uint64
}

// nodeName is the name of the device that is the node itself.
const nodeName = "(node)"

// tunnels are the types of devices that lead to other nodes.
var tunnels = []string{"vxlan", "geneve", "gretap", "ip6gretap", "wireguard", "ipip", "ip6tnl", "sit", "gre", "ip6gre"}

// withEthernet are the kinds of devices, as of ARPHRD_…, whose packets have an
// Ethernet header.
var withEthernet = []string{"ether", "loopback"}

// cards are the types of devices that carry nothing of the node's own pods: with an address,
// others reach the node by them.
var cards = []string{"device", "vlan", "bond", "team"}

// Patterns are patterns of names of devices, as of path.Match.
type Patterns struct {
	// Devices are those on which others reach the node; none: those that Devices chooses.
	Devices []string
	// XDP are those of them whose driver is to have a program, AutoXDP, or none.
	XDP []string
}

// Devices returns the devices, of the network namespace of the calling thread,
// on which others reach the node, sorted by index, and before them the node
// itself. Those with an index that is kept stay chosen as long as they are there.
//
// A device without an address of a family leaves with one that the node has
// elsewhere, as the kernel's masquerading does.
func Devices(patterns Patterns, kept ...int) ([]Device, error) {
	c := choice{patterns: patterns, kept: map[int]bool{}}
	for _, index := range kept {
		c.kept[index] = true
	}
	n, err := readNetwork()
	if err != nil {
		return nil, err
	}
	return c.devices(n), nil
}

// choice is what decides which devices are chosen, besides what the kernel says.
type choice struct {
	patterns Patterns
	node     []netip.Addr // addresses by which the cluster knows the node
	leads    map[int]bool // devices by which backends on other nodes are reached, by index
	shared   map[int]bool // those by which backends on this one are
	kept     map[int]bool // devices that stay chosen, by index
}

// devices returns the devices of a network that are chosen, and before them the node itself.
func (c choice) devices(n *network) []Device {
	node := n.node()
	out := []Device{node}
	chosen := map[int]bool{}
	for _, l := range n.links {
		chosen[l.Attrs().Index] = c.isChosen(l, n)
	}
	for _, l := range n.links {
		index := l.Attrs().Index
		if !chosen[index] || len(c.patterns.Devices) == 0 && chosen[l.Attrs().MasterIndex] {
			continue // a bridge or bond sees all that its ports do
		}
		d := Device{Index: index, Name: l.Attrs().Name, L3: !slices.Contains(withEthernet, l.Attrs().EncapType), Shared: c.shared[index]}
		d.Trunk = n.isTrunk(index, chosen)
		d.Down = isDown(l.Attrs().OperState)
		d.IP4, d.IP6 = first(n.addresses[index], c.node)
		d.chooseXDP(l, n.links, c.patterns.XDP)
		out = append(out, d.orOf(node))
	}
	return byIndex(out)
}

// byIndex sorts devices. slices.SortFunc is compiled for each type, which takes 28 kB of this one.
func byIndex(all []Device) []Device {
	sort.Slice(all, func(i, j int) bool { return all[i].Index < all[j].Index })
	return all
}

// isChosen says whether a device is one on which others reach the node.
func (c choice) isChosen(l netlink.Link, n *network) bool {
	a := l.Attrs()
	if len(c.patterns.Devices) > 0 {
		return matchesAny(c.patterns.Devices, a.Name)
	}
	if slices.Contains(tunnels, l.Type()) && a.Flags&net.FlagUp != 0 {
		return true
	}
	if a.Flags&net.FlagLoopback != 0 || l.Type() == "vrf" || n.isPort(l) {
		return false
	}
	return n.gateways[a.Index] || c.leads[a.Index] && mayLeadElsewhere(l) || c.kept[a.Index] ||
		slices.ContainsFunc(n.addresses[a.Index], func(addr netlink.Addr) bool {
			ip := addrOf(addr)
			return slices.Contains(c.node, ip) || isReachable(ip) && n.isCard(l)
		})
}

// ofPods are the types of devices that lead to a pod of this node.
var ofPods = []string{"veth", "netkit"}

// mayLeadElsewhere says whether a device may lead to other nodes without a gateway, whatever an
// EndpointSlice says of the address of a pod.
func mayLeadElsewhere(l netlink.Link) bool {
	return l.Attrs().Flags&net.FlagLoopback == 0 && !slices.Contains(ofPods, l.Type())
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

// network is what the kernel says of links, addresses and routes.
type network struct {
	links     []netlink.Link
	types     map[int]string         // of the links, by index
	addresses map[int][]netlink.Addr // by index of the device
	gateways  map[int]bool           // devices of default routes, and of those by a gateway, by index
}

func readNetwork() (*network, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	n := &network{links: links, types: map[int]string{}, addresses: map[int][]netlink.Addr{}}
	for _, l := range links {
		n.types[l.Attrs().Index] = l.Type()
	}
	for _, a := range list {
		n.addresses[a.LinkIndex] = append(n.addresses[a.LinkIndex], a)
	}
	n.gateways, err = gatewayDevices()
	return n, err
}

// isCard says whether others reach the node by a device with an address: it is a card, or a bridge of one.
func (n *network) isCard(l netlink.Link) bool {
	return slices.Contains(cards, l.Type()) || l.Type() == "bridge" && slices.ContainsFunc(n.links, func(port netlink.Link) bool {
		return port.Attrs().MasterIndex == l.Attrs().Index && slices.Contains(cards, port.Type())
	})
}

// hasPort says whether a port of a device is one of some, by index.
func (n *network) hasPort(index int, some map[int]bool) bool {
	return slices.ContainsFunc(n.links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == index && some[l.Attrs().Index] })
}

// isTrunk says whether a VLAN device on a device, or a bridge of one, is chosen, too.
func (n *network) isTrunk(index int, chosen map[int]bool) bool {
	return slices.ContainsFunc(n.links, func(l netlink.Link) bool {
		a := l.Attrs()
		return l.Type() == "vlan" && a.ParentIndex == index && (chosen[a.Index] || chosen[a.MasterIndex] || n.isTrunk(a.Index, chosen))
	})
}

// isPort says whether a device is a port of a bridge, bond or switch, which has its addresses.
func (n *network) isPort(l netlink.Link) bool {
	master, is := n.types[l.Attrs().MasterIndex]
	return is && master != "vrf"
}

// gatewayDevices returns the indexes of devices that carry a default route, or one by a
// gateway, of either family, in any table: rules and VRFs have their own.
func gatewayDevices() (map[int]bool, error) {
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	out := map[int]bool{}
	for _, r := range routes {
		if r.Type != unix.RTN_UNICAST {
			continue
		}
		toAll := r.Dst == nil || r.Dst.IP.IsUnspecified()
		if r.LinkIndex > 0 && (toAll || r.Gw != nil || r.Via != nil) {
			out[r.LinkIndex] = true
		}
		for _, hop := range r.MultiPath {
			if toAll || hop.Gw != nil || hop.Via != nil {
				out[hop.LinkIndex] = true
			}
		}
	}
	return out, nil
}

func addrOf(a netlink.Addr) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.IP)
	return addr.Unmap()
}

// first returns the address of each family that packets to others leave with: one by which the
// cluster knows the node if there is one, else the first that the kernel would take, which is no
// temporary address (RFC 8981) and no virtual IP beside others.
func first(list []netlink.Addr, node []netip.Addr) (ip4, ip6 netip.Addr) {
	rank := func(a netlink.Addr) int {
		ones, bits := a.Mask.Size()
		switch {
		case slices.Contains(node, addrOf(a)):
			return 0
		case a.Flags&unix.IFA_F_SECONDARY != 0 || bits == 32 && ones == bits: // IFA_F_TEMPORARY is the same bit
			return 2
		default:
			return 1
		}
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b netlink.Addr) int { return rank(a) - rank(b) })
	for _, a := range list {
		addr := addrOf(a)
		if !isReachable(addr) || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DEPRECATED) != 0 {
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
func (n *network) node() Device {
	list := []netlink.Addr{}
	for _, index := range slices.Sorted(maps.Keys(n.addresses)) {
		list = append(list, n.addresses[index]...)
	}
	out := Device{Name: nodeName}
	out.IP4, out.IP6 = first(list, nil)
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
	return out
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

// Way says in words how the node's packets to an address leave, such as by eth0 for router 192.0.2.1. It is "" for an address of
// the node.
func Way(to netip.Addr) (string, error) {
	r, err := routeTo(to)
	if err != nil || r.Type == unix.RTN_LOCAL {
		return "", err
	}
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return "", err
	}
	way := "by " + link.Attrs().Name
	if r.Gw != nil {
		way += " for router " + r.Gw.String()
	}
	return way, nil
}

// TurnsBack says whether packets to an address leave for a router by a device.
func TurnsBack(to netip.Addr, device uint32) bool {
	r, err := routeTo(to)
	return err == nil && uint32(r.LinkIndex) == device && (r.Gw != nil || r.Via != nil)
}

// isDown says whether a link carries no packets. That of many virtual devices is unknown.
func isDown(s netlink.LinkOperState) bool {
	return s == netlink.OperDown || s == netlink.OperLowerLayerDown || s == netlink.OperNotPresent
}

// IsVeth says whether a device is one end of a pair, such as that of a pod whose other end the node has.
func IsVeth(index uint32) bool {
	link, err := netlink.LinkByIndex(int(index))
	return err == nil && link.Type() == "veth"
}

// ComesBy returns the indexes of the devices at which packets of another are seen, where they come by the way to it: that of the
// route, its ports, and what a VLAN device is on.
func ComesBy(from netip.Addr) ([]uint32, error) {
	by, err := LeavesBy(from)
	out := []uint32{by}
	if err != nil {
		return out, err
	}
	links, err := dump(netlink.LinkList)
	for _, l := range links {
		switch a := l.Attrs(); {
		case a.MasterIndex == int(by):
			out = append(out, uint32(a.Index))
		case a.Index == int(by) && l.Type() == "vlan":
			out = append(out, uint32(a.ParentIndex))
		}
	}
	return out, err
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
