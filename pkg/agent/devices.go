package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

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
	choice   PodDevices
	log      *zap.Logger
	notify   func([]plan.Device)
	problems func([]lb.Problem)
	node     string // name of this one

	cluster  *netdev.Cluster
	begun    chan struct{} // closes with the first update: devices depend on it
	begin    sync.Once
	pods     map[lb.PodName]*lb.Pod
	slices   map[lb.SliceName]map[backendNetwork]netip.Addr // a backend of each network
	networks map[backendNetwork]map[netip.Addr]int          // these backends, with how many slices name each
	backends netdev.Backends                                // as the cluster has them

	uplinks []string // devices on which others reach the node, as logged; nil at first
	last    []string // the last of them, when there were any
	had     bool     // an earlier agent had some
}

// backendNetwork is a network with backends on this node, or on others.
type backendNetwork struct {
	prefix netip.Prefix
	here   bool
}

// backendsOfNetwork is how many backends of a network are looked for, at most: mostly all are
// reached alike, and a slice may have anything.
const backendsOfNetwork = 4

func newDeviceList(cfg Config, log *zap.Logger, notify func([]plan.Device), problems func([]lb.Problem)) *deviceList {
	return &deviceList{
		choice: cfg.PodDevices, log: log, notify: notify, problems: problems, node: cfg.NodeName,
		cluster: netdev.NewCluster(), begun: make(chan struct{}),
		pods: map[lb.PodName]*lb.Pod{}, slices: map[lb.SliceName]map[backendNetwork]netip.Addr{}, networks: map[backendNetwork]map[netip.Addr]int{},
	}
}

// watch follows the devices from the first update on, until the context ends. Before are the
// indexes of devices that an earlier agent chose.
func (l *deviceList) watch(ctx context.Context, patterns netdev.Patterns, before []int) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.begun:
		l.had = len(before) > 0
		return netdev.WatchDevices(ctx, patterns, before, l.cluster, datapath.EachNamespace, l.setDevices, l.missed)
	}
}

// update takes what a source says.
func (l *deviceList) update(u lb.Update) {
	if u.Node != nil {
		addrs := append([]netip.Addr{u.Node.IP4, u.Node.IP6}, u.NodeAddresses[u.Node.Name]...)
		l.cluster.SetNode(slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() }))
	}
	l.setPods(u.Pods)
	l.setSlices(u.Slices)
	l.begin.Do(func() { close(l.begun) })
}

// setPods takes what has changed of the Pods on this node.
func (l *deviceList) setPods(changes map[lb.PodName]*lb.Pod) {
	if !l.choice.watched() || len(changes) == 0 {
		return
	}
	for name, p := range changes {
		if p == nil {
			delete(l.pods, name)
			continue
		}
		l.pods[name] = p
	}
	list := []netdev.Pod{}
	for _, name := range slices.SortedFunc(maps.Keys(l.pods), lb.PodName.Compare) {
		if p := l.pods[name]; l.choice == PodDevicesAll || p.PacketsOnly {
			list = append(list, netdev.Pod{Name: name.String(), Addrs: p.Addrs, PacketsOnly: p.PacketsOnly})
		}
	}
	l.cluster.SetPods(list)
}

// setSlices takes what has changed of EndpointSlices.
func (l *deviceList) setSlices(changes map[lb.SliceName]*lb.Slice) {
	changed := false
	for name, s := range changes {
		now := l.backendsOf(s)
		if maps.Equal(now, l.slices[name]) {
			continue
		}
		changed = true
		for n, b := range now {
			if l.networks[n] == nil {
				l.networks[n] = map[netip.Addr]int{}
			}
			l.networks[n][b]++
		}
		for n, b := range l.slices[name] {
			if l.networks[n][b]--; l.networks[n][b] == 0 {
				delete(l.networks[n], b)
			}
			if len(l.networks[n]) == 0 {
				delete(l.networks, n)
			}
		}
		if l.slices[name] = now; len(now) == 0 {
			delete(l.slices, name)
		}
	}
	if changed {
		l.setBackends()
	}
}

// setBackends tells the cluster some backends of each network.
func (l *deviceList) setBackends() {
	var b netdev.Backends
	for n, backends := range l.networks {
		some := slices.SortedFunc(maps.Keys(backends), netip.Addr.Compare)
		some = some[:min(len(some), backendsOfNetwork)]
		if n.here {
			b.Here = append(b.Here, some...)
		} else {
			b.Elsewhere = append(b.Elsewhere, some...)
		}
	}
	slices.SortFunc(b.Here, netip.Addr.Compare)
	slices.SortFunc(b.Elsewhere, netip.Addr.Compare)
	if !slices.Equal(b.Here, l.backends.Here) || !slices.Equal(b.Elsewhere, l.backends.Elsewhere) {
		l.backends = b
		l.cluster.SetBackends(b)
	}
}

// backendsOf returns a backend of each network of a slice, the lowest, if its node is known.
func (l *deviceList) backendsOf(s *lb.Slice) map[backendNetwork]netip.Addr {
	if s == nil {
		return nil
	}
	out := map[backendNetwork]netip.Addr{}
	for _, e := range s.Endpoints {
		node := e.Where.Topology().Node
		if node == "" || !e.Ready && !e.Serving {
			continue
		}
		n := backendNetwork{networkOf(e.Addr), node == l.node}
		if b, known := out[n]; !known || e.Addr.Less(b) {
			out[n] = e.Addr
		}
	}
	return out
}

// networkOf returns the network whose addresses one node has mostly: a /24, or a /64 of IPv6.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // it is not longer than the address
	return p
}

// setDevices takes the devices that were found.
func (l *deviceList) setDevices(seen netdev.Seen) {
	list := seen.Devices
	l.logUplinks(list)
	l.problems(l.wrong(seen))
	out := []plan.Device{}
	for _, d := range list {
		out = append(out, plan.Device{
			Index: uint32(d.Index), Name: d.Name, IP4: d.IP4, IP6: d.IP6, L3: d.L3, Trunk: d.Trunk, Shared: d.Shared, Pod: d.Pod != "", Exempt: d.Netns, XDP: d.XDP, NoXDP: d.NoXDP, Veth: d.Veth,
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
		l.log.Warn("no device is chosen, so packets from outside the node are not balanced: name devices with --devices, or add a route with a gateway")
	default:
		l.log.Info("balancing packets at devices", zap.Strings("devices", names))
	}
	l.uplinks = names
	if len(names) > 0 {
		l.last = names
	}
}

// wrong returns the problems with devices.
func (l *deviceList) wrong(seen netdev.Seen) (out []lb.Problem) {
	object := "Node " + l.node
	if len(l.uplinks) == 0 && (l.had || len(l.last) > 0) {
		out = append(out, lb.Problem{Scope: lb.ScopeNode, Object: object, Field: "devices", Value: strings.Join(l.last, ", "),
			Reason: "no device is chosen, and there were some: packets from other hosts are not balanced",
			Remedy: "bring a device back, or name another with --devices"})
	}
	isDown := func(d netdev.Device) bool { return d.Down || d.Index == 0 || d.Pod != "" }
	if len(l.uplinks) > 0 && !slices.ContainsFunc(seen.Devices, func(d netdev.Device) bool { return !isDown(d) }) {
		out = append(out, lb.Problem{Scope: lb.ScopeNode, Object: object, Field: "devices", Value: strings.Join(l.uplinks, ", "),
			Reason: "links of all devices are down: packets from other hosts do not come", Remedy: "set one up (ip link set DEVICE up), or look at its cable or peer"})
	}
	for _, b := range seen.Unchosen {
		out = append(out, lb.Problem{Scope: lb.ScopeNode, Object: object, Field: "devices", Value: b.Device,
			Reason: "leads to backend " + b.Backend.String() + " on another node and has no programs: clients outside the cluster do not reach it by this node",
			Remedy: "add the device to --devices"})
	}
	return out
}

// missed hears of a pod whose device or network namespace was not found.
func (l *deviceList) missed(pod string, why error) {
	l.log.Warn("find a pod, will try again", zap.String("pod", pod), zap.Error(why))
}
