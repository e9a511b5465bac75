package netdev

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Pod is a pod on this node whose device programs belong on.
type Pod struct {
	Name  string // for people
	Addrs []netip.Addr
	// PacketsOnly says that its sockets are to be left alone.
	PacketsOnly bool
}

// podFinder finds the devices of pods, beside any CNI: the kernel knows the way.
type podFinder struct {
	// ports are the ports of bridges on which addresses were found. A bridge
	// forgets those who are silent, and they are still there.
	ports map[netip.Addr]int
	// each visits network namespaces, see WatchDevices.
	each func(do func(file string, cookie uint64) error) error
	// namespaces are cookies of network namespaces, 0 where the cookie is not known.
	namespaces map[peer]uint64
	again      time.Time // when the namespaces may be looked through again
}

// peer is the other end of a device. The kernel gives an ID to another network namespace once
// the first is gone, so an ID holds for one device.
type peer struct {
	device int // index of the node's end
	netns  int // ID in the node's network namespace, -1 for none
}

// devices returns the devices of pods, sorted by index, and why there is none of
// some pods yet. None of them is one of the others.
func (f *podFinder) devices(pods []Pod, others []Device) ([]Device, map[string]error) {
	found, missing := map[int]Device{}, map[string]error{}
	seen, marked := map[netip.Addr]bool{}, map[peer]bool{}
	for _, pod := range pods {
		for _, addr := range pod.Addrs {
			seen[addr] = true
			d, l, err := f.device(addr)
			if err == nil && slices.ContainsFunc(others, func(o Device) bool { return o.Index == d.Index }) {
				err = fmt.Errorf("%s is by %s, on which others reach the node", addr, d.Name)
			}
			if err != nil {
				missing[pod.Name] = err
				continue
			}
			d.Pod = pod.Name
			if pod.PacketsOnly && l.Type() != "tuntap" { // no socket of this kernel is behind a tap
				marked[peerOf(l)] = true
			}
			found[d.Index] = d.orOf(found[d.Index])
		}
	}
	maps.DeleteFunc(f.ports, func(a netip.Addr, _ int) bool { return !seen[a] })
	f.exempt(marked, found, missing)
	return byIndex(slices.Collect(maps.Values(found))), missing
}

// peerOf returns the other end of a device of a pod. The kernel's ID for other types is that of
// the device below.
func peerOf(l netlink.Link) peer {
	if !slices.Contains(ofPods, l.Type()) {
		return peer{l.Attrs().Index, -1}
	}
	return peer{l.Attrs().Index, l.Attrs().NetNsID}
}

// exempt gives found devices the network namespaces of their peers, and adds to missing why pods have none.
func (f *podFinder) exempt(marked map[peer]bool, found map[int]Device, missing map[string]error) {
	unknown := map[int]bool{}
	for p := range marked {
		if f.namespaces[p] == 0 && p.netns >= 0 {
			unknown[p.netns] = true
		}
	}
	cookies, err := f.cookies(unknown)
	known := map[peer]uint64{}
	for p := range marked {
		if known[p] = f.namespaces[p]; known[p] == 0 {
			known[p] = cookies[p.netns]
		}
		d := found[p.device]
		d.Netns = known[p]
		found[p.device] = d
		switch {
		case p.netns < 0:
			missing[d.Pod] = fmt.Errorf("%s is no veth or netkit that leads to another network namespace: the sockets of the pod are balanced", d.Name)
		case d.Netns == 0:
			missing[d.Pod] = fmt.Errorf("find the network namespace behind %s, until then the sockets of the pod are balanced: %w", d.Name, err)
		}
	}
	f.namespaces = known
}

// errNoNamespace says that a network namespace is not known.
var errNoNamespace = errors.New("no process or visible mount holds it")

// cookies returns the cookies of network namespaces by their IDs in the node's. The error tells why some may be
// missing. The search takes at most 2 % of the time.
func (f *podFinder) cookies(ids map[int]bool) (map[int]uint64, error) {
	began := time.Now()
	if len(ids) == 0 || began.Before(f.again) {
		return nil, errNoNamespace
	}
	node, err := netlink.NewHandle(unix.NETLINK_ROUTE) // stays in the network namespace of the node
	if err != nil {
		return nil, fmt.Errorf("ask for network namespaces: %w", err)
	}
	defer node.Close()
	out := map[int]uint64{}
	err = f.each(func(_ string, cookie uint64) error {
		its, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer its.Close()
		id, err := node.GetNetNsIdByFd(int(its.Fd()))
		if err == nil && ids[id] {
			out[id] = cookie
		}
		return err
	})
	f.again = began.Add(50 * time.Since(began))
	return out, errors.Join(errNoNamespace, err)
}

// device returns the node's end of the device of a pod with an address, with the
// address of the node that the pod sees of it.
func (f *podFinder) device(addr netip.Addr) (Device, netlink.Link, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return Device{}, nil, fmt.Errorf("no route to %s: %w", addr, err)
	}
	r := routes[0]
	if r.Type != unix.RTN_UNICAST || r.Gw != nil {
		return Device{}, nil, fmt.Errorf("%s is not reached directly", addr)
	}
	l, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Device{}, nil, fmt.Errorf("find the device of %s: %w", addr, err)
	}
	if l.Type() == "bridge" {
		if l, err = f.port(l, addr); err != nil {
			return Device{}, nil, err
		}
	}
	if !slices.Contains(withEthernet, l.Attrs().EncapType) {
		return Device{}, nil, fmt.Errorf("%s is by %s, whose packets have no Ethernet header", addr, l.Attrs().Name)
	}
	d := Device{Index: l.Attrs().Index, Name: l.Attrs().Name}
	src, ok := netip.AddrFromSlice(r.Src)
	if src = src.Unmap(); ok && src.Is4() {
		d.IP4 = src
	} else if ok {
		d.IP6 = src
	}
	return d, l, nil
}

// port returns the port of a bridge behind which an address is. Where nobody
// knows yet the kernel is made to ask.
func (f *podFinder) port(bridge netlink.Link, addr netip.Addr) (netlink.Link, error) {
	index := bridge.Attrs().Index
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	if known, err := netlink.LinkByIndex(f.ports[addr]); err == nil && known.Attrs().MasterIndex == index {
		return known, nil
	}
	delete(f.ports, addr)
	neighbours, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
	if err != nil {
		return nil, fmt.Errorf("list the neighbours of %s: %w", bridge.Attrs().Name, err)
	}
	for _, n := range neighbours {
		ip, _ := netip.AddrFromSlice(n.IP)
		if ip.Unmap() != addr || len(n.HardwareAddr) == 0 || n.State&netlink.NUD_FAILED != 0 {
			continue
		}
		return f.portOf(bridge, addr, n.HardwareAddr)
	}
	_ = netlink.NeighSet(&netlink.Neigh{LinkIndex: index, Family: family, IP: addr.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE}) // asks
	return nil, fmt.Errorf("%s has not answered on %s yet", addr, bridge.Attrs().Name)
}

// portOf returns the port of a bridge behind which a hardware address is, and
// remembers it for an address.
func (f *podFinder) portOf(bridge netlink.Link, addr netip.Addr, mac net.HardwareAddr) (netlink.Link, error) {
	entries, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return nil, fmt.Errorf("list what %s forwards: %w", bridge.Attrs().Name, err)
	}
	for _, e := range entries {
		if e.MasterIndex != bridge.Attrs().Index || !slices.Equal(e.HardwareAddr, mac) {
			continue
		}
		port, err := netlink.LinkByIndex(e.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("find the port of %s: %w", addr, err)
		}
		f.ports[addr] = e.LinkIndex
		return port, nil
	}
	return nil, fmt.Errorf("%s knows no port of %s", bridge.Attrs().Name, mac)
}
