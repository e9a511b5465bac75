package agent

import (
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// PodDevices says which pods have their packets balanced at their own devices.
type PodDevices string

// The choices.
const (
	PodDevicesNone   PodDevices = "none"   // no pods are watched
	PodDevicesMarked PodDevices = "marked" // those whose sockets are left alone
	PodDevicesAll    PodDevices = "all"
)

// watched says whether the Pods of the node need to be known.
func (p PodDevices) watched() bool { return p == PodDevicesMarked || p == PodDevicesAll }

// deviceList puts together which devices have programs: those on which others
// reach the node, and those of pods.
type deviceList struct {
	choice PodDevices
	log    *zap.Logger
	notify func([]plan.Device)

	pods  *netdev.Pods // nil where none are watched
	known map[lb.PodName]*lb.Pod

	uplinks []string // devices on which others reach the node, as logged; nil at first
}

func newDeviceList(choice PodDevices, log *zap.Logger, notify func([]plan.Device)) *deviceList {
	l := &deviceList{choice: choice, log: log, notify: notify, known: map[lb.PodName]*lb.Pod{}}
	if choice.watched() {
		l.pods = netdev.NewPods()
	}
	return l
}

// setPods takes what has changed of the Pods on this node.
func (l *deviceList) setPods(changes map[lb.PodName]*lb.Pod) {
	if l.pods == nil || len(changes) == 0 {
		return
	}
	for name, p := range changes {
		if p == nil {
			delete(l.known, name)
			continue
		}
		l.known[name] = p
	}
	list := []netdev.Pod{}
	for _, name := range slices.SortedFunc(maps.Keys(l.known), lb.PodName.Compare) {
		if p := l.known[name]; l.choice == PodDevicesAll || p.PacketsOnly {
			list = append(list, netdev.Pod{Name: name.String(), Addrs: p.Addrs, PacketsOnly: p.PacketsOnly})
		}
	}
	l.pods.Set(list)
}

// setDevices takes the devices that were found.
func (l *deviceList) setDevices(list []netdev.Device) {
	l.logUplinks(list)
	namespaces := l.namespaces(list)
	out := []plan.Device{}
	for _, d := range list {
		out = append(out, plan.Device{
			Index: uint32(d.Index), Name: d.Name, IP4: d.IP4, IP6: d.IP6, L3: d.L3, Pod: d.Pod != "", Exempt: namespaces[d.PodAddr], XDP: d.XDP, NoXDP: d.NoXDP, Veth: d.Veth,
		})
	}
	l.notify(out)
}

// logUplinks logs on which devices packets from elsewhere are balanced, as often as
// that changes. No device at all is mostly a mistake in --devices.
func (l *deviceList) logUplinks(list []netdev.Device) {
	names := []string{}
	for _, d := range list {
		if d.Index != 0 && d.Pod == "" {
			names = append(names, d.Name)
		}
	}
	switch {
	case l.uplinks != nil && slices.Equal(names, l.uplinks):
	case len(names) == 0:
		l.log.Warn("no device is chosen, so packets from outside the node are not balanced: name devices with --devices, or add a default route")
	default:
		l.log.Info("balancing packets at devices", zap.Strings("devices", names))
	}
	l.uplinks = names
}

// missed hears of a pod whose device was not found.
func (l *deviceList) missed(pod string, why error) {
	l.log.Warn("find the device of a pod, will try again", zap.String("pod", pod), zap.Error(why))
}

// namespaces returns the cookies of the network namespaces of the pods whose
// sockets are to be left alone, by address.
func (l *deviceList) namespaces(list []netdev.Device) map[netip.Addr]uint64 {
	wanted := map[netip.Addr]bool{}
	for _, d := range list {
		if d.PodAddr.IsValid() {
			wanted[d.PodAddr] = true
		}
	}
	found := map[netip.Addr]uint64{}
	if len(wanted) == 0 {
		return found
	}
	err := datapath.EachNamespace(func(_ string, cookie uint64) error {
		addrs, err := netdev.Addresses()
		for a := range addrs {
			if wanted[a] {
				found[a] = cookie
				delete(wanted, a)
			}
		}
		return err
	})
	if err != nil || len(wanted) > 0 {
		// Virtual machines may have their addresses to themselves.
		l.log.Warn("find the network namespaces of pods: the agent balances their sockets, too", zap.Stringers("pods", slices.Collect(maps.Keys(wanted))), zap.Error(err))
	}
	return found
}
