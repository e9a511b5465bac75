package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/plan"
)

// deviceHook is a program of devices and the side that it is attached to. In is
// what comes into the node.
type deviceHook struct {
	program string
	in      bool
	driver  bool // it runs in the driver, natively, before there is a packet of the kernel
}

func (h deviceHook) attach() ebpf.AttachType {
	switch {
	case h.driver:
		return ebpf.AttachXDP
	case h.in:
		return ebpf.AttachTCXIngress
	default:
		return ebpf.AttachTCXEgress
	}
}

// link attaches a program to a device.
func (h deviceHook) link(index int, program *ebpf.Program) (link.Link, error) {
	if h.driver {
		return link.AttachXDP(link.XDPOptions{Interface: index, Program: program, Flags: link.XDPDriverMode})
	}
	// First: if a program of others says TCX_PASS, later ones do not see the packet.
	return link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: h.attach(), Anchor: link.Head()})
}

// deviceKinds are the programs of each kind of device, in the order in which
// they come into force: what completes a flow before what begins one.
var deviceKinds = map[string][]deviceHook{
	"device": {{program: "device_out"}, {program: "device_in", in: true}},
	"l3":     {{program: "l3_out"}, {program: "l3_in", in: true}},
	"pod":    {{program: "pod_out"}, {program: "pod_in", in: true}},
}

// deviceHooks are the programs of every kind, sorted by name: what repeats at a driver what
// others did comes last.
var deviceHooks = slices.SortedFunc(func(yield func(deviceHook) bool) {
	if !yield(driverHook) {
		return
	}
	for _, hooks := range deviceKinds {
		for _, h := range hooks {
			if !yield(h) {
				return
			}
		}
	}
}, func(a, b deviceHook) int { return strings.Compare(a.program, b.program) })

// hooksOf are the programs of a device.
func hooksOf(d plan.Device) []deviceHook {
	switch {
	case d.Index == 0:
		return nil // the node itself
	case d.Pod:
		return deviceKinds["pod"]
	case d.L3:
		return deviceKinds["l3"]
	default:
		return deviceKinds["device"]
	}
}

// SetDevices attaches the programs to these devices and to no others. A device
// that refuses is in the error; the others are attached all the same. The error
// is errors.ErrUnsupported where the kernel cannot. Attach must have been called
// before.
func (d *Datapath) SetDevices(devices []plan.Device) error {
	if _, err := d.repin(); err != nil { // else what lost its pin would be attached twice
		return err
	}
	wanted, exempt := map[uint32]plan.Device{}, map[uint64]bool{}
	for _, dev := range devices {
		wanted[dev.Index] = dev
	}
	if err := d.retireDrivers(wanted); err != nil {
		return err
	}
	var errs []error
	d.devices = nil
	for _, dev := range devices {
		if err := d.setDevice(dev); err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", dev.Name, err))
			continue
		}
		d.devices = append(d.devices, dev)
		if dev.Exempt != 0 {
			exempt[dev.Exempt] = true
		}
	}
	// Sockets are balanced until packets are, and again before packets are not.
	err := errors.Join(append(errs, d.setExempt(exempt), d.dropDevices(wanted), d.hold())...)
	d.setDrivers()
	return err
}

// Uplinks returns the devices on which others reach the node, by index, with whether they lead to
// backends on this node, too. They are those of the maps: after a start those of the agent before.
// Some may be gone.
func (d *Datapath) Uplinks() (shared map[int]bool, err error) {
	shared = map[int]bool{}
	err = walk(d.maps.byName["devices"], func(index *uint32, value *headgateDevice) error {
		if *index != 0 && value.Flags&headgateDeviceFlagDEVICE_POD == 0 {
			shared[int(*index)] = value.Flags&headgateDeviceFlagDEVICE_SHARED != 0
		}
		return nil
	})
	return shared, err
}

// setDevice writes the addresses of a device, then attaches to it.
func (d *Datapath) setDevice(dev plan.Device) error {
	value := encodeDevice(dev)
	old, err := d.device(dev.Index)
	if err != nil {
		return err
	}
	if value.Flags |= old.Flags & driverFlags; old != value {
		if err := d.putDevice(dev.Index, value); err != nil {
			return err
		}
	}
	if err := d.holdPrograms(hooksOf(dev)); err != nil {
		return err
	}
	for _, h := range hooksOf(dev) {
		if err := d.attachDevice(int(dev.Index), h, d.held.programs[h.program]); err != nil {
			return fmt.Errorf("attach %s: %w", h.program, err)
		}
	}
	return nil
}

// device returns what the maps say of a device, the zero value for nothing.
func (d *Datapath) device(index uint32) (out headgateDevice, err error) {
	err = d.maps.byName["devices"].Lookup(index, &out)
	return out, ignoreMissing(err)
}

// putDevice replaces what the maps say of a device. What left by it before is not repeated.
func (d *Datapath) putDevice(index uint32, value headgateDevice) error {
	d.maps.about.at(0).Writes++
	err := d.maps.byName["devices"].Put(index, value)
	d.maps.newEpoch()
	return err
}

// dropDevices detaches from devices that are not wanted, or of another kind
// now, and forgets them.
func (d *Datapath) dropDevices(wanted map[uint32]plan.Device) error {
	keep := func(index uint32, program string) bool {
		if program == driverHook.program {
			return d.wantsDriver(wanted[index])
		}
		return slices.ContainsFunc(hooksOf(wanted[index]), func(h deviceHook) bool { return h.program == program })
	}
	if err := errors.Join(d.dropLinks(keep), dropFilters(keep)); err != nil {
		return err
	}
	known := map[uint32]bool{}
	err := walk(d.maps.byName["devices"], func(index *uint32, _ *headgateDevice) error {
		known[*index] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, index := range slices.Sorted(maps.Keys(known)) {
		if _, keep := wanted[index]; keep {
			continue
		}
		d.maps.about.at(0).Writes++
		if err := ignoreMissing(d.maps.byName["devices"].Delete(index)); err != nil {
			return err
		}
	}
	return nil
}

// setExempt says in which network namespaces, by cookie, sockets are left alone.
func (d *Datapath) setExempt(namespaces map[uint64]bool) error {
	m := d.maps.byName["exempt_namespaces"]
	known := map[uint64]bool{}
	err := walk(m, func(cookie *uint64, _ *uint32) error {
		known[*cookie] = true
		return nil
	})
	if err != nil {
		return err
	}
	for cookie := range known {
		if namespaces[cookie] {
			continue
		}
		d.maps.about.at(0).Writes++
		if err := ignoreMissing(m.Delete(cookie)); err != nil {
			return fmt.Errorf("forget an exempt namespace: %w", err)
		}
	}
	for cookie := range namespaces {
		if known[cookie] {
			continue
		}
		d.maps.about.at(0).Writes++
		if err := m.Put(cookie, uint32(1)); err != nil {
			return fmt.Errorf("exempt a namespace: %w", err)
		}
	}
	return nil
}
