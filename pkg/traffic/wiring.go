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

func setUpForwarding() error {
	for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := writeSysctl(path, "1"); err != nil {
			return err
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
