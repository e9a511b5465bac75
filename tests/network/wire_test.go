package network

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// host is a machine of the network.
type host struct {
	*traffic.Namespace
	tb testing.TB
}

// newHost makes a machine that forwards, with strict reverse-path filters.
func newHost(tb testing.TB, name string) *host {
	tb.Helper()
	ns, err := traffic.NewNamespace(traffic.RunName("hg-net") + "-" + name)
	if err != nil {
		tb.Fatal(err)
	}
	h := &host{ns, tb}
	tb.Cleanup(func() {
		if err := ns.Close(); err != nil {
			tb.Error(err)
		}
	})
	h.do(func() error {
		for path, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "1", "ipv4/conf/default/rp_filter": "1",
			"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0",
			"ipv6/conf/all/forwarding": "1", "ipv6/conf/default/forwarding": "1",
		} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0); err != nil {
				return err
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return h
}

func (h *host) do(f func() error) {
	h.tb.Helper()
	if err := h.Do(f); err != nil {
		h.tb.Fatalf("%s: %v", h.Name(), err)
	}
}

// plug connects two machines by devices of these names.
func plug(a *host, deviceA string, b *host, deviceB string, mtu int) {
	a.tb.Helper()
	peer, err := os.Open(b.Path())
	if err != nil {
		a.tb.Fatal(err)
	}
	defer peer.Close()
	a.do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: deviceA, MTU: mtu},
			PeerName:  deviceB, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(int(peer.Fd())),
		})
	})
	for h, device := range map[*host]string{a: deviceA, b: deviceB} {
		h.up(device)
	}
}

func (h *host) up(device string) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// address gives a device addresses, each with the prefix of its network.
func (h *host) address(device string, prefixes ...string) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(p)), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return nil
	})
}

// filter sets how devices, or all, filter by reverse paths: the greater value counts.
func (h *host) filter(value string, devices ...string) {
	h.tb.Helper()
	h.do(func() error {
		for _, d := range devices {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+d+"/rp_filter", []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// route sends what is for a prefix to a gateway.
func (h *host) route(prefix, gateway string) {
	h.tb.Helper()
	h.do(func() error {
		p := netip.MustParsePrefix(prefix)
		return netlink.RouteReplace(&netlink.Route{Dst: ipNet(p), Gw: net.ParseIP(gateway)})
	})
}

// link sends what is for a prefix by a device, on which it is.
func (h *host) link(device, prefix string) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(prefix)), LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK})
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// bridge makes a bridge of devices.
func (h *host) bridge(name string, devices ...string) {
	h.tb.Helper()
	h.do(func() error {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(b); err != nil {
			return err
		}
		for _, d := range devices {
			l, err := netlink.LinkByName(d)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, b); err != nil {
				return err
			}
		}
		return nil
	})
	h.up(name)
}

// vxlan makes a tunnel to one other node.
func (h *host) vxlan(name, own, other string) {
	h.tb.Helper()
	h.do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1450}, VxlanId: 7, Port: 4789, VtepDevIndex: eth0.Attrs().Index,
			SrcAddr: net.ParseIP(own), Group: net.ParseIP(other),
		})
	})
	h.up(name)
}

func removeLink(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(l)
}

// sumHere makes the kernel compute the checksums of what leaves by a device, as
// without the help of one: between namespaces nobody else ever looks at them.
func (h *host) sumHere(device string) {
	h.tb.Helper()
	h.ethtool(device, unix.ETHTOOL_STXCSUM, 0)
}

// takesXDP makes a veth device take frames that an XDP program at its other end sends, by a
// program of its own. With GRO alone it takes those that are redirected there, but nobody wakes it
// to look for what is sent back (veth_xdp_flush).
func (h *host) takesXDP(device string) link.Link {
	h.tb.Helper()
	return h.attachXDP(device, &ebpf.ProgramSpec{Name: "firewall", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
}

// attachXDP attaches a program to the driver of a device for as long as the test runs.
func (h *host) attachXDP(device string, spec *ebpf.ProgramSpec) link.Link {
	h.tb.Helper()
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		h.tb.Fatal(err)
	}
	defer p.Close()
	var attached link.Link
	h.do(func() error {
		d, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		attached, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: d.Index, Flags: link.XDPDriverMode})
		return err
	})
	h.tb.Cleanup(func() { attached.Close() })
	return attached
}

// xdpPass is the verdict of linux/bpf.h that leaves a frame to the stack.
const xdpPass = 2

// ethtool sets what a device does.
func (h *host) ethtool(device string, command, value uint32) {
	h.tb.Helper()
	h.do(func() error { return testenv.Ethtool(device, command, &value) })
}
