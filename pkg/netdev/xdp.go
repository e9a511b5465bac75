package netdev

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// AutoXDP, in place of patterns, is every device but veth.
const AutoXDP = "auto"

// chooseXDP says whether a program belongs in the driver of a device, and why not where that is
// asked for.
func (d *Device) chooseXDP(l netlink.Link, all []netlink.Link, patterns []string) {
	auto := slices.Contains(patterns, AutoXDP)
	veth := l.Type() == "veth"
	switch {
	case len(patterns) == 0 || !auto && !matchesAny(patterns, d.Name):
	case d.L3:
		d.NoXDP = "its packets have no Ethernet header"
	case auto && veth:
		d.NoXDP = "it is a veth device, which gains nothing: name it in place of " + AutoXDP + " if it is meant"
	case veth && !SendsXDP(d.Index):
		d.NoXDP = "its peer takes no frames of XDP: switch GRO on there, and checksums of what is sent off (ethtool -K DEVICE gro on tx off)"
	case hasVLANs(d.Index, all) && stripsTags(d.Name):
		d.NoXDP = fmt.Sprintf("VLAN devices are on it, and the driver hides their tags: switch that off (ethtool -K %s rxvlan off)", d.Name)
	default:
		d.XDP, d.Veth = true, veth
	}
}

func hasVLANs(index int, all []netlink.Link) bool {
	return slices.ContainsFunc(all, func(l netlink.Link) bool { return l.Type() == "vlan" && l.Attrs().ParentIndex == index })
}

// Of linux/ethtool.h and linux/netdev.h.
const (
	ethtoolGetFlags = 0x25
	ethtoolRxVLAN   = 1 << 8

	netdevFamily      = "netdev"
	netdevGetDevice   = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
	netdevXDPXmit     = 1 << 2
)

// stripsTags says whether a driver takes the tags of VLANs off frames before a program sees them.
// Where it cannot be asked it does not.
func stripsTags(name string) bool {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(s)
	value := struct{ cmd, data uint32 }{cmd: ethtoolGetFlags}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errno == 0 && value.data&ethtoolRxVLAN != 0
}

// SendsXDP says whether a device sends the frames that XDP programs give it. Kernels before 6.3
// cannot be asked: then it does.
func SendsXDP(index int) bool {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return true
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	// Not nl.Genlmsg: that has two bytes, and what follows them in memory is sent with it.
	header := []byte{netdevGetDevice, 1, 0, 0}
	request.AddRawData(append(header, nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(index))).Serialize()...))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(answers) == 0 || len(answers[0]) < len(header) {
		return true
	}
	attrs, err := nl.ParseRouteAttr(answers[0][len(header):])
	for _, a := range attrs {
		if a.Attr.Type == netdevXDPFeatures && len(a.Value) >= 8 {
			return nl.NativeEndian().Uint64(a.Value)&netdevXDPXmit != 0
		}
	}
	return err != nil || len(attrs) == 0
}
