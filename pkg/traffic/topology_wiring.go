package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The functions below act on the network namespace of the calling thread.

func setUpMachine(m Machine) error {
	if err := setUpSysctls(); err != nil {
		return err
	}
	if m.Forwards {
		if err := setUpForwarding(); err != nil {
			return err
		}
	}
	if err := setUpDevice("lo", m.Addrs); err != nil {
		return err
	}
	// IPv4 lets sockets have any local address, IPv6 only those that a device
	// has.
	if err := writeSysctl("/proc/sys/net/ipv6/ip_nonlocal_bind", "1"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find device lo: %s", err)
	}
	for _, p := range m.Prefixes {
		err := netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: ipNet(p), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		})
		if err != nil {
			return fmt.Errorf("make %s local: %s", p, err)
		}
	}
	return nil
}

// connect makes a link and sets both ends up.
func (p *Topology) connect(l Link) error {
	a, b := p.namespaces[l.A], p.namespaces[l.B]
	if a == nil || b == nil {
		return fmt.Errorf("no such machine")
	}
	for end, machine := range []string{l.A, l.B} {
		peer, _ := l.other(machine)
		err := p.namespaces[machine].Do(func() error {
			switch {
			case l.VXLAN != 0:
				if err := addTunnel(l, peer, p.Machine(machine), p.Machine(peer)); err != nil {
					return err
				}
			case end == 0:
				if err := addPair(l, b.Path()); err != nil {
					return err
				}
			}
			return setUpDevice(l.Device(peer), []netip.Addr{linkLocal[end]})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addPair makes a veth pair from this namespace to that of B.
func addPair(l Link, peerNamespace string) error {
	peer, err := os.Open(peerNamespace)
	if err != nil {
		return err
	}
	defer peer.Close()
	err = netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: l.Device(l.B), MTU: l.MTU},
		PeerName:  l.Device(l.A), PeerNamespace: netlink.NsFd(peer.Fd()), PeerMTU: uint32(l.MTU),
	})
	if err != nil {
		return fmt.Errorf("add veth %s: %s", l.Device(l.B), err)
	}
	return nil
}

// vxlanPort is the port that IANA has for VXLAN.
const vxlanPort = 4789

// addTunnel makes this end of a VXLAN to a peer, over IPv4.
func addTunnel(l Link, peer string, own, other Machine) error {
	zero := netip.IPv4Unspecified()
	err := netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: l.Device(peer), MTU: l.MTU},
		VxlanId:   l.VXLAN, Port: vxlanPort,
		SrcAddr: sameFamily(own.Addrs, zero).AsSlice(),
		Group:   sameFamily(other.Addrs, zero).AsSlice(),
	})
	if err != nil {
		return fmt.Errorf("add vxlan %s: %s", l.Device(peer), err)
	}
	return nil
}

func addWays(ways []way) error {
	for _, w := range ways {
		route := netlink.Route{Dst: ipNet(w.to), Gw: w.via.AsSlice(), Src: w.from.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := addRoute(w.device, route); err != nil {
			return fmt.Errorf("add route to %s by %s: %s", w.to, w.device, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Received returns how many packets a device of a machine has received.
func (p *Topology) Received(machine, device string) (packets uint64, err error) {
	err = p.namespaces[machine].Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find device %s of %s: %s", device, machine, err)
		}
		if s := link.Attrs().Statistics; s != nil {
			packets = s.RxPackets
		}
		return nil
	})
	return packets, err
}
