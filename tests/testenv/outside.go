package testenv

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic"
)

// The addresses of this machine and of the one outside, and those of pods that are there.
var (
	NodeIP    = netip.MustParsePrefix("192.0.2.1/24")
	OutsideIP = netip.MustParsePrefix("192.0.2.9/24")
	podsThere = netip.MustParsePrefix("10.244.2.0/24")
	anywhere  = netip.MustParsePrefix("0.0.0.0/0")
)

// Beside makes a machine beside the network namespace of this thread until the test ends. A device leads
// to eth0 of the machine. Both are down and have no address.
func Beside(tb testing.TB, name, device string) *traffic.Namespace {
	tb.Helper()
	Need(tb)
	machine, err := traffic.NewNamespace(traffic.RunName(name))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := machine.Close(); err != nil {
			tb.Error(err)
		}
	})
	file, err := os.Open(machine.Path())
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(file.Fd()))}
	if err := netlink.LinkAdd(link); err != nil {
		tb.Fatalf("add device %s: %v", device, err)
	}
	tb.Cleanup(func() {
		if err := netlink.LinkDel(link); err != nil {
			tb.Error(err)
		}
	})
	return machine
}

// Outside makes a machine beside this one until the test ends, and the device of this one that
// leads there. It reaches everything by this machine, which forwards its packets. Pods of
// 10.244.2.0/24 are there: packets for one that is not are lost without a word.
func Outside(tb testing.TB, device string) *traffic.Namespace {
	tb.Helper()
	machine := Beside(tb, "hg-outside", device)
	err := errors.Join(
		plug(device, NodeIP, podsThere, OutsideIP.Addr()),
		os.WriteFile("/proc/sys/net/ipv4/conf/"+device+"/forwarding", []byte("1"), 0o600),
		machine.Do(func() error {
			return errors.Join(plug("eth0", OutsideIP, anywhere, NodeIP.Addr()), setUp("lo"))
		}))
	if err != nil {
		tb.Fatal(err)
	}
	return machine
}

// plug gives a device an address, sets it up, and leads a prefix by it to a gateway.
func plug(device string, address, to netip.Prefix, gateway netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	err = errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)}), netlink.LinkSetUp(link))
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: gateway.AsSlice()})
}

func setUp(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
