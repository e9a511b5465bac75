package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// podDevice is the name of the only device of a pod.
const podDevice = "eth0"

// nodeDevice is the name of the node's end of a pod's device.
func nodeDevice(pod Pod) string { return "hg-" + pod.Name }

// gateway6 is the next hop of pods for IPv6. IPv4 pods use an address of the
// node directly: the kernel answers ARP for all its addresses on all devices,
// but neighbour solicitations only for those of the device asked.
var gateway6 = netip.MustParseAddr("fe80::1")

// The functions below act on the network namespace of the calling thread.

// setUpSysctls makes sure of IPv6, which the host may have set to be off in new
// namespaces.
func setUpSysctls() error {
	const conf = "/proc/sys/net/ipv6/conf"
	if _, err := os.Stat(conf); err != nil {
		return errors.New("IPv6 is off in this kernel: start it without ipv6.disable=1")
	}
	for _, scope := range []string{"all", "default"} {
		if err := writeSysctl(filepath.Join(conf, scope, "disable_ipv6"), "0"); err != nil {
			return err
		}
	}
	return nil
}

func setUpNode(addrs []netip.Addr) error {
	if err := setUpSysctls(); err != nil {
		return err
	}
	if err := setUpForwarding(); err != nil {
		return err
	}
	return setUpDevice("lo", addrs)
}

func setUpForwarding() error {
	for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := writeSysctl(path, "1"); err != nil {
			return err
		}
	}
	return nil
}

// plug makes the veth pair between the node, whose thread calls, and the pod,
// and the routes of the node to the pod.
func plug(pod Pod, podNamespace string, nodeAddrs []netip.Addr) error {
	peer, err := os.Open(podNamespace)
	if err != nil {
		return err
	}
	defer peer.Close()
	name := nodeDevice(pod)
	link := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name},
		PeerName:      podDevice,
		PeerNamespace: netlink.NsFd(peer.Fd()),
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add veth %s: %s", name, err)
	}
	if err := setUpDevice(name, []netip.Addr{gateway6}); err != nil {
		return err
	}
	for _, addr := range pod.Addrs {
		source := sameFamily(nodeAddrs, addr)
		route := netlink.Route{Dst: hostNet(addr), Src: source.AsSlice(), Scope: netlink.SCOPE_LINK}
		if err := addRoute(name, route); err != nil {
			return fmt.Errorf("add route to %s: %s", addr, err)
		}
	}
	return nil
}

func setUpPod(pod Pod, nodeAddrs []netip.Addr) error {
	if err := setUpDevice("lo", nil); err != nil {
		return err
	}
	if err := setUpDevice(podDevice, pod.Addrs); err != nil {
		return err
	}
	for _, addr := range pod.Addrs {
		route := netlink.Route{Dst: everything(addr), Gw: gateway6.AsSlice()}
		if addr.Is4() {
			route.Gw = sameFamily(nodeAddrs, addr).AsSlice()
			route.Flags = int(netlink.FLAG_ONLINK) // the node is in no subnet of ours
		}
		if err := addRoute(podDevice, route); err != nil {
			return fmt.Errorf("add default route of %s: %s", addr, err)
		}
	}
	return nil
}

// awaitDevice returns when a device sends packets and takes those for addrs. The
// kernel finishes both later, in a work queue: until then packets are lost,
// though the device is up and has the addresses.
func awaitDevice(name string, addrs []netip.Addr) error {
	for range 5000 {
		ready, err := isReady(name, addrs)
		if ready || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("device %s does not come up", name)
}

func isReady(name string, addrs []netip.Addr) (bool, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return false, fmt.Errorf("find device %s: %s", name, err)
	}
	if link.Attrs().OperState != netlink.OperUp {
		return false, nil
	}
	for _, addr := range addrs {
		if addr.IsLinkLocalUnicast() {
			continue // has a route on every device
		}
		routes, err := netlink.RouteGet(addr.AsSlice())
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
			return false, nil
		}
	}
	return true, nil
}

// setUpDevice brings a device up and gives it addrs, each as a network of its
// own, so that nothing but routes decides what is reached.
func setUpDevice(name string, addrs []netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %s", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %s", name, err)
	}
	for _, addr := range addrs {
		entry := &netlink.Addr{IPNet: hostNet(addr)}
		if addr.Is6() {
			// Duplicate address detection keeps an address unusable for
			// a second.
			entry.Flags = unix.IFA_F_NODAD
		}
		if addr.IsLinkLocalUnicast() {
			entry.Scope = int(netlink.SCOPE_LINK)
		}
		if err := netlink.AddrAdd(link, entry); err != nil {
			return fmt.Errorf("add %s to %s: %s", addr, name, err)
		}
	}
	return nil
}

func addRoute(device string, route netlink.Route) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	route.LinkIndex = link.Attrs().Index
	return netlink.RouteAdd(&route)
}

func hostNet(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}

func everything(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, addr.BitLen()/8), Mask: net.CIDRMask(0, addr.BitLen())}
}

// sameFamily returns the first of addrs that is of the family of want, the
// zero address if there is none.
func sameFamily(addrs []netip.Addr, want netip.Addr) netip.Addr {
	for _, addr := range addrs {
		if addr.Is4() == want.Is4() {
			return addr
		}
	}
	return netip.Addr{}
}

// writeSysctl writes one file below /proc/sys/net, which shows the namespace
// of the thread that opens it.
func writeSysctl(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl: %s", err)
	}
	return nil
}
