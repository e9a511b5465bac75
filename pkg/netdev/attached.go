package netdev

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Attached is a BPF program on a device that is not attached by tcx.
type Attached struct {
	Hook    string // "xdp", "clsact in" or "clsact out"
	Name    string // of the filter, "" for none
	Program uint32 // the kernel's ID of it
}

// AttachedTo returns the programs on a device of the calling thread's network namespace,
// without those of ours.
func AttachedTo(index int) ([]Attached, error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("find device %d: %w", index, err)
	}
	var all []Attached
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		all = append(all, Attached{Hook: "xdp", Program: xdp.ProgId})
	}
	for _, in := range []bool{true, false} {
		found, err := othersFilters(l, Filter{Index: index, In: in})
		if err != nil {
			return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func othersFilters(l netlink.Link, side Filter) (all []Attached, err error) {
	list, err := dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, side.parent()) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil, nil // without the qdisc, or gone meanwhile
	}
	hook := "clsact out"
	if side.In {
		hook = "clsact in"
	}
	for _, each := range list {
		if b, ok := each.(*netlink.BpfFilter); ok && !isOurs(b) && b.Id != 0 {
			all = append(all, Attached{Hook: hook, Name: b.Name, Program: uint32(b.Id)})
		}
	}
	return all, err
}
