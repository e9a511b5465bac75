package netdev

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our filters have a priority and a handle of their own, so that they are found
// again, replaced in one step, and never taken for another's.
const (
	filterPriority = 72
	filterHandle   = 0x4847
	filterPrefix   = "headgate:"
)

// Filter is a program of ours in the clsact qdisc of a device (tc-bpf(8)): what
// kernels have that lack tcx.
type Filter struct {
	Index   int    // of the device
	In      bool   // what comes in; otherwise what leaves
	Name    string // of the program
	Program uint32 // the kernel's ID of it; SetFilter does not look at it
}

func (f Filter) parent() uint32 {
	if f.In {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

func (f Filter) attrs() netlink.FilterAttrs {
	return netlink.FilterAttrs{LinkIndex: f.Index, Parent: f.parent(), Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL}
}

// SetFilter puts the program with a file descriptor in force on a device of the
// calling thread's network namespace, in place of the one of ours that is there.
// Those of others stay, and are asked after it.
func SetFilter(f Filter, program int) error {
	if err := addClsact(f.Index); err != nil {
		return err
	}
	filter := &netlink.BpfFilter{FilterAttrs: f.attrs(), Fd: program, Name: filterPrefix + f.Name, DirectAction: true}
	err := netlink.FilterReplace(filter)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("add a filter: the kernel has no cls_bpf (CONFIG_NET_CLS_BPF): %w", errors.ErrUnsupported)
	}
	if errors.Is(err, unix.EINVAL) && !f.In {
		return errors.New("add a filter: the device has the qdisc ingress, which keeps no filters for what leaves: replace it by clsact")
	}
	if err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// addClsact makes sure of the qdisc that keeps filters. It is never removed: an
// empty one costs nothing, and others may be about to use it.
func addClsact(index int) error {
	err := netlink.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	})
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("add the qdisc clsact: the kernel has none (CONFIG_NET_SCH_INGRESS): %w", errors.ErrUnsupported)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the qdisc clsact: %w", err)
	}
	return nil
}

// Filters returns the filters of ours on every device of the calling thread's
// network namespace.
func Filters() ([]Filter, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var out []Filter
	for _, l := range links {
		for _, in := range []bool{true, false} {
			f := Filter{Index: l.Attrs().Index, In: in}
			if found, err := f.find(l); err != nil {
				return nil, fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
			} else if found {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// Find fills in what of ours is in force on a side of a device, and says whether
// that is anything.
func (f *Filter) Find() (bool, error) {
	l, err := netlink.LinkByIndex(f.Index)
	if err != nil {
		return false, fmt.Errorf("find device %d: %w", f.Index, err)
	}
	return f.find(l)
}

// InForce says whether just this program is.
func (f Filter) InForce() (bool, error) {
	there := f
	found, err := there.Find()
	return found && there.Name == f.Name && there.Program == f.Program, err
}

func (f *Filter) find(l netlink.Link) (bool, error) {
	list, err := dump(func() ([]netlink.Filter, error) { return netlink.FilterList(l, f.parent()) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return false, nil // without the qdisc, or gone meanwhile
	}
	for _, each := range list {
		if b, ok := each.(*netlink.BpfFilter); ok && isOurs(b) {
			f.Name, f.Program = strings.TrimPrefix(b.Name, filterPrefix), uint32(b.Id)
			return true, nil
		}
	}
	return false, err
}

func isOurs(b *netlink.BpfFilter) bool {
	return b.Priority == filterPriority && b.Handle == filterHandle && strings.HasPrefix(b.Name, filterPrefix)
}

// RemoveFilter takes a filter of ours out of force. One that is gone is no error.
func RemoveFilter(f Filter) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: f.attrs()})
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("remove the filter %s of device %d: %w", f.Name, f.Index, err)
}
