package datapath_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// drivers are devices whose driver is to repeat, as an agent finds them.
type drivers struct {
	*testing.T
	cfg datapath.Config
	d   *datapath.Datapath
	why map[string]string // as reported
}

// newDrivers loads a datapath whose drivers repeat.
func newDrivers(t *testing.T) *drivers {
	testenv.Need(t)
	s := &drivers{T: t}
	s.cfg = config(t)
	s.cfg.XDP, s.cfg.ReportXDP = true, func(why map[string]string) { s.why = maps.Clone(why) }
	s.d = mustOpen(t, s.cfg)
	if err := s.d.Attach(); err != nil {
		t.Fatal(err)
	}
	return s
}

// pair makes a device whose other end takes frames of XDP.
func (s *drivers) pair(name string) netlink.Link {
	s.Helper()
	s.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"})
	s.xdp(name + "-peer")
	l, err := netlink.LinkByName(name)
	s.must(err)
	return l
}

func (s *drivers) add(l netlink.Link) {
	s.Helper()
	s.must(netlink.LinkAdd(l))
	s.Cleanup(func() { _ = netlink.LinkDel(l) })
}

func (s *drivers) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// xdp attaches a program of another owner to a device.
func (s *drivers) xdp(device string) link.Link {
	s.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "other", Type: ebpf.XDP, License: "GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	s.must(err)
	defer p.Close()
	d, err := net.InterfaceByName(device)
	s.must(err)
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: d.Index, Flags: link.XDPDriverMode})
	s.must(err)
	s.Cleanup(func() { l.Close() })
	return l
}

// look finds devices and sets them, as an agent does.
func (s *drivers) look(names ...string) {
	s.Helper()
	found, err := netdev.Devices(netdev.Patterns{Devices: names, XDP: names})
	s.must(err)
	var list []plan.Device
	for _, d := range found[1:] { // behind the node itself
		list = append(list, plan.Device{Index: uint32(d.Index), Name: d.Name, L3: d.L3, XDP: d.XDP, NoXDP: d.NoXDP, Veth: d.Veth})
	}
	s.must(s.d.SetDevices(list))
}

// want says of which devices the driver repeats.
func (s *drivers) want(when string, names ...string) {
	s.Helper()
	by := map[string]string{}
	for _, d := range mustInspect(s, s.cfg).Devices {
		for _, h := range d.Hooks {
			if h.Name == "uplink" {
				by[d.Name] = h.By
			}
		}
	}
	for _, name := range names {
		if by[name] != datapath.NativeXDP {
			s.Errorf("%s, %s has %v, and it is said: %v", when, name, by, s.why)
		}
	}
	if len(by) != len(names) {
		s.Errorf("%s, drivers are %v, want %v", when, by, names)
	}
}

// wantWhy says what is said of a device.
func (s *drivers) wantWhy(name, part string) {
	s.Helper()
	if !strings.Contains(s.why[name], part) || part == "" && s.why[name] != "" {
		s.Errorf("of %s it is said %q, want %q", name, s.why[name], part)
	}
}

func TestADriverGoesAndComesBack(t *testing.T) {
	s := newDrivers(t)
	l := s.pair("hg-x0")
	s.look("hg-x0")
	s.want("at first", "hg-x0")
	s.must(netlink.LinkDel(l))
	s.look("hg-x0")
	s.want("while it is gone")
	s.pair("hg-x0")
	s.look("hg-x0")
	s.want("when it is back", "hg-x0")
	s.look()
	s.want("when it is to be left alone")
	if pins, _ := filepath.Glob(filepath.Join(s.cfg.Root, "links", "uplink_*")); len(pins) > 0 {
		t.Errorf("there are still %v", pins)
	}
}

func TestADriverWithAProgramOfOthers(t *testing.T) {
	s := newDrivers(t)
	s.pair("hg-x0")
	other := s.xdp("hg-x0")
	s.look("hg-x0")
	s.want("beside another")
	s.wantWhy("hg-x0", "another XDP program is there, other (ID ")
	s.wantWhy("hg-x0", "have it call "+filepath.Join(s.cfg.Root, "maps", "uplink"))
	s.must(other.Close())
	if _, _, err := s.d.Restore(); err != nil {
		t.Fatal(err)
	}
	s.want("alone", "hg-x0")
	s.wantWhy("hg-x0", "")
}

// TestAMuteDriverIsNotTriedAgain has a driver that takes the program and sends no frames. Whoever
// tries again finds the program of others that is there by then.
func TestAMuteDriverIsNotTriedAgain(t *testing.T) {
	s := newDrivers(t)
	s.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-mute"}, PeerName: "hg-mute-peer"})
	d, err := net.InterfaceByName("hg-mute")
	s.must(err)
	list := []plan.Device{{Index: uint32(d.Index), Name: d.Name, XDP: true}}
	s.must(s.d.SetDevices(list))
	s.wantWhy("hg-mute", "the driver sends no frames")
	other := s.xdp("hg-mute")
	for _, again := range []func() error{
		func() error { _, _, err := s.d.Restore(); return err },
		func() error { return s.d.SetDevices(list) },
	} {
		s.must(again())
		s.wantWhy("hg-mute", "the driver sends no frames")
	}
	s.must(other.Close())
	s.xdp("hg-mute-peer")
	s.must(s.d.SetDevices(list))
	s.want("once it sends", "hg-mute")
	s.wantWhy("hg-mute", "")
}

// TestDevicesWithTags has VLAN devices on a device, whose driver hides tags or not.
func TestDevicesWithTags(t *testing.T) {
	s := newDrivers(t)
	l := s.pair("hg-x0")
	tagged := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "hg-x0.7", ParentIndex: l.Attrs().Index}, VlanId: 7}
	if err := netlink.LinkAdd(tagged); err != nil {
		testenv.Lacks(t, "VLAN devices", err)
	}
	s.Cleanup(func() { _ = netlink.LinkDel(tagged) })
	s.look("hg-x0", "hg-x0.7")
	s.want("while tags are hidden")
	s.wantWhy("hg-x0", "VLAN devices are on it, and the driver hides their tags")
	s.showTags("hg-x0")
	s.look("hg-x0", "hg-x0.7")
	s.want("with tags in frames", "hg-x0")
	s.wantWhy("hg-x0", "")
	s.wantWhy("hg-x0.7", "the driver")
}

// showTags has a driver leave tags of VLANs in frames, as ethtool -K rxvlan off does.
func (s *drivers) showTags(device string) {
	s.Helper()
	const rxVLAN = 1 << 8 // ETH_FLAG_RXVLAN of linux/ethtool.h
	var flags uint32
	s.must(testenv.Ethtool(device, unix.ETHTOOL_GFLAGS, &flags))
	flags &^= rxVLAN
	s.must(testenv.Ethtool(device, unix.ETHTOOL_SFLAGS, &flags))
}

// TestABondOfDrivers attaches to a bond, which hands the program on to its devices, if they all
// take it.
func TestABondOfDrivers(t *testing.T) {
	s := newDrivers(t)
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "hg-bond"})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	if err := netlink.LinkAdd(bond); err != nil {
		testenv.Lacks(t, "bonds", err)
	}
	s.Cleanup(func() { _ = netlink.LinkDel(bond) })
	for _, name := range []string{"hg-x0", "hg-x1"} {
		s.must(netlink.LinkSetBondSlave(s.pair(name), bond))
	}
	s.look("hg-bond")
	s.want("of two", "hg-bond")
	s.wantWhy("hg-bond", "")
}

// TestDriversThatRefuse names devices whose driver does not take the program.
func TestDriversThatRefuse(t *testing.T) {
	s := newDrivers(t)
	s.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "hg-bridge"}})
	s.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-deaf"}, PeerName: "hg-deaf-peer"})
	s.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-jumbo", MTU: 9000}, PeerName: "hg-jumbo-peer"})
	s.xdp("hg-jumbo-peer")
	names := []string{"hg-bridge", "hg-deaf", "hg-jumbo"}
	s.look(names...)
	s.want("of all that refuse", "hg-jumbo") // frames in several buffers
	s.wantWhy("hg-bridge", "the driver does not take it")
	s.wantWhy("hg-deaf", "its peer takes no frames of XDP")
	for _, name := range names { // TC goes on
		d, err := net.InterfaceByName(name)
		s.must(err)
		if _, err := os.Stat(filepath.Join(s.cfg.Root, "links", "device_in_"+strconv.Itoa(d.Index))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
