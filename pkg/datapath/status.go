package datapath

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// Status is what is said of a loaded datapath as a whole.
type Status struct {
	Version  string            `json:"version"` // of the agent that loaded it or adopted it last
	Node     string            `json:"node"`
	Cgroup   string            `json:"cgroup"`
	Object   string            `json:"object"`   // SHA-256 of object and constants, in hex
	Agent    bool              `json:"agent"`    // an agent runs
	Writes   uint64            `json:"writes"`   // by agents to the maps
	Hooks    []Hook            `json:"hooks"`    // of sockets
	Failures string            `json:"failures"` // what notes connections that fail
	Devices  []Device          `json:"devices"`  // by index
	Counters map[string]uint64 `json:"counters"`
	Drops    map[string]uint64 `json:"drops"` // by drop reason
}

// Status returns what is said of the datapath as a whole.
func (r *Reader) Status() (s Status, err error) {
	about := r.maps.about.at(0)
	s = Status{
		Version: decodeString(about.Version[:]),
		Node:    decodeString(about.Node[:]),
		Cgroup:  decodeString(about.Cgroup[:]),
		Object:  hex.EncodeToString(about.Object[:]),
		Agent:   AgentRuns(r.root),
		Writes:  about.Writes,
	}
	_, err = r.link(watchers[0].program)
	traced := err != nil
	s.Hooks, s.Failures = r.hookStates(s.Cgroup, traced), notedBySockOps
	if traced {
		s.Failures = NotedByTracepoints
	}
	if s.Devices, err = r.deviceStates(); err != nil {
		return s, fmt.Errorf("read the devices: %w", err)
	}
	s.Counters, s.Drops, err = r.Counters()
	return s, err
}

// What notes connections that fail, for people.
const (
	NotedByTracepoints = "noted by tracepoints"
	notedBySockOps     = "noted by sock_ops, at a higher cost of each connection: the kernel refuses programs at tracepoints (lockdown=confidentiality, or no CONFIG_BPF_EVENTS)"
)

// AgentRuns says whether an agent has the directory of pins, whatever it has
// pinned there yet.
func AgentRuns(root string) bool {
	f, err := lock(root)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, ErrBusy)
}

// NativeXDP is how a program is attached to the driver of a device.
const NativeXDP = "native XDP"

// Hook is a program with whether it is in force, and how.
type Hook struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
	By       string `json:"by,omitempty"` // of a device: tcx, clsact or NativeXDP
}

// Device is a device that programs belong on.
type Device struct {
	Index uint32 `json:"index"`
	Name  string `json:"name"` // "#INDEX" where it is gone
	Pod   bool   `json:"pod,omitempty"`
	Hooks []Hook `json:"hooks"`
	value headgateDevice
}

// IsShared says whether the device leads to pods, too.
func (d Device) IsShared() bool { return d.value.Flags&headgateDeviceFlagDEVICE_SHARED != 0 }

// Source returns the address that flows of the family of another get where they leave by the
// device; not valid where it has none.
func (d Device) Source(of netip.Addr) netip.Addr {
	addr := d.value.Ip6
	if of.Is4() {
		addr = d.value.Ip4
	}
	if addr == (headgateIpAddr{}) {
		return netip.Addr{}
	}
	return decodeAddr(addr)
}

// hookStates returns the programs of sockets.
func (r *Reader) hookStates(cgroup string, traced bool) (out []Hook) {
	id := cgroupID(cgroup)
	for _, h := range socketHooks(traced) {
		info, err := r.link(h.program)
		out = append(out, Hook{Name: h.program, Attached: err == nil && h.isOf(info, id)})
	}
	return out
}

// deviceStates returns the devices, by index. Their names are those of the network
// namespace of the calling thread.
func (r *Reader) deviceStates() ([]Device, error) {
	out := []Device{}
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, d := range found {
		names[uint32(d.Index)] = d.Name
	}
	values := map[uint32]headgateDevice{}
	err = walk(r.maps.byName["devices"], func(index *uint32, value *headgateDevice) error {
		values[*index] = *value
		return nil
	})
	delete(values, 0) // the node itself
	for _, index := range slices.Sorted(maps.Keys(values)) {
		out = append(out, r.deviceState(index, names[index], values[index]))
	}
	return out, err
}

func (r *Reader) deviceState(index uint32, name string, value headgateDevice) Device {
	d := Device{Index: index, Name: cmp.Or(name, fmt.Sprintf("#%d", index)), Pod: value.Flags&headgateDeviceFlagDEVICE_POD != 0, value: value}
	hooks := hooksOf(plan.Device{Index: index, Pod: d.Pod, L3: value.Flags&headgateDeviceFlagDEVICE_L3 != 0})
	if value.Flags&driverFlags == headgateDeviceFlagDEVICE_XDP {
		hooks = append(slices.Clip(hooks), driverHook)
	}
	for _, h := range hooks {
		by := r.attachedBy(index, h)
		d.Hooks = append(d.Hooks, Hook{Name: h.program, Attached: by != "", By: by})
	}
	return d
}

// attachedBy says how a program is attached to a device, "" where it is not.
func (r *Reader) attachedBy(index uint32, h deviceHook) string {
	if info, err := r.link(devicePin(h.program, index)); err == nil {
		switch {
		case !isOfDevice(info, index):
			return ""
		case h.driver:
			return NativeXDP
		default:
			return "tcx"
		}
	}
	if h.driver {
		return ""
	}
	f := netdev.Filter{Index: int(index), In: h.in}
	if there, err := f.Find(); err == nil && there && f.Name == h.program {
		return "clsact"
	}
	return ""
}

// isOnDevice says whether a link is attached to a device.
func isOnDevice(l link.Link, index uint32) bool {
	info, err := l.Info()
	return err == nil && isOfDevice(info, index)
}

func isOfDevice(l *link.Info, index uint32) bool {
	return l.TCX() != nil && l.TCX().Ifindex == index || l.XDP() != nil && l.XDP().Ifindex == index
}
