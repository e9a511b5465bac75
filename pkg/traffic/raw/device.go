package raw

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route is the way of packets from a namespace to a target.
type route struct {
	device   int    // its index
	name     string // of the device
	from, to net.HardwareAddr
}

// findRoute asks the kernel, in the network namespace of this thread, by which
// device and to which hardware address packets leave for a target.
func findRoute(target netip.Addr) (route, error) {
	routes, err := netlink.RouteGet(target.AsSlice())
	if err != nil || len(routes) == 0 {
		return route{}, fmt.Errorf("find a route to %s: %s", target, err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return route{}, fmt.Errorf("find the device to %s: %s", target, err)
	}
	if len(link.Attrs().HardwareAddr) != 6 {
		return route{}, fmt.Errorf("device %s to %s is not Ethernet", link.Attrs().Name, target)
	}
	next := target
	if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next = gateway.Unmap()
	}
	to, err := findNeighbour(link.Attrs().Index, next)
	if err != nil {
		return route{}, err
	}
	return route{link.Attrs().Index, link.Attrs().Name, link.Attrs().HardwareAddr, to}, nil
}

// findNeighbour has the kernel find the hardware address of a neighbour.
func findNeighbour(device int, addr netip.Addr) (net.HardwareAddr, error) {
	family := netlink.FAMILY_V6
	if addr.Is4() {
		family = netlink.FAMILY_V4
	}
	for range 200 {
		entries, err := netlink.NeighList(device, family)
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %s", err)
		}
		for _, n := range entries {
			if ip, _ := netip.AddrFromSlice(n.IP); ip.Unmap() == addr && len(n.HardwareAddr) == 6 && n.State&netlink.NUD_FAILED == 0 {
				return n.HardwareAddr, nil
			}
		}
		if err := knock(addr, device); err != nil {
			return nil, fmt.Errorf("reach neighbour %s: %w", addr, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("neighbour %s does not say its hardware address", addr)
}

// knock sends a datagram to the discard port, which has the kernel ask for the
// neighbour.
func knock(addr netip.Addr, device int) error {
	zone := ""
	if addr.IsLinkLocalUnicast() && addr.Is6() {
		zone = fmt.Sprint(device)
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr.WithZone(zone), 9)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte{0})
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil // it is there
	}
	return err
}

// within runs f on a thread in a network namespace.
func within(namespace string, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open this network namespace: %w", err)
	}
	defer unix.Close(home)
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", namespace, err)
	}
	err = f()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("go back to the network namespace: %w", back)) // and the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// ethtoolSetGRO is ETHTOOL_SGRO of linux/ethtool.h.
const ethtoolSetGRO = 0x2c

// EnableGRO has a device put packets together that belong together. On a veth
// it starts the queue that live frames of the other end go through.
func EnableGRO(namespace, device string) error {
	return within(namespace, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("enable GRO of %s: %w", device, err)
		}
		defer unix.Close(fd)
		value := struct{ command, on uint32 }{ethtoolSetGRO, 1}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // the rest of struct ifreq
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("enable GRO of %s: %w", device, errno)
		}
		return nil
	})
}

// The device that a ceiling is measured with: the other end of the pair takes
// nothing, since packets are addressed to somebody else.
const (
	deadEnd     = "hg-ceiling"
	deadEndPeer = "hg-ceiling-peer"
)

func addDeadEnd() error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: deadEnd, Flags: net.FlagUp}, PeerName: deadEndPeer}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add veth %s: %s", deadEnd, err)
	}
	peer, err := netlink.LinkByName(deadEndPeer)
	if err == nil {
		err = netlink.LinkSetUp(peer)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %s", deadEndPeer, err)
	}
	return nil
}

func removeDeadEnd() error {
	if err := netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: deadEnd}}); err != nil {
		return fmt.Errorf("remove veth %s: %s", deadEnd, err)
	}
	return nil
}

func findDeadEnd() (int, error) {
	link, err := netlink.LinkByName(deadEnd)
	if err != nil {
		return 0, fmt.Errorf("find device %s: %s", deadEnd, err)
	}
	return link.Attrs().Index, nil
}
