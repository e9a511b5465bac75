package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// RestoredPins is what Restore calls pins of programs and maps.
const RestoredPins = "pins"

// Restore looks whether everything that Attach and SetDevices have put in force
// still is, puts back what is not, and pins again what lost its pin. It returns
// what was put back: names of programs, those of devices as "device_in on eth0",
// and RestoredPins; what cannot be pinned, which is in force for as long as this process
// lives; and which programs are not in force, and why.
//
// Where nothing is amiss it costs a few system calls for each program. Before
// Attach it does nothing.
func (d *Datapath) Restore() (restored []string, unpinned, outOfForce error) {
	if !d.isAttached() || len(d.held.links) == 0 {
		return nil, nil, nil
	}
	pinned, unpinned := d.repinSeen()
	if pinned {
		restored = append(restored, RestoredPins)
	}
	hooks, errHooks := d.restoreHooks()
	devices, errDevices := d.restoreDevices()
	devices = append(devices, d.setDrivers()...)
	if len(hooks)+len(devices) > 0 {
		unpinned = errors.Join(unpinned, d.hold())
	}
	return slices.Concat(restored, hooks, devices), unpinned, errors.Join(errHooks, errDevices)
}

// restoreHooks puts the programs of the cgroup back in force, in their order.
func (d *Datapath) restoreHooks() (restored []string, err error) {
	cgroup := cgroupID(d.cfg.Cgroup)
	if cgroup == 0 {
		return nil, fmt.Errorf("the cgroup %s is gone, no socket is balanced: make it again, or start the agent with another --cgroup", d.cfg.Cgroup)
	}
	for _, h := range socketHooks(d.object.traced) {
		l := d.held.links[h.program]
		if l != nil && h.isAttached(l, cgroup) {
			continue
		}
		if err := d.restoreHook(h, l); err != nil {
			return restored, fmt.Errorf("attach %s to %s again: %w", h.program, h.where(d.cfg.Cgroup), err)
		}
		restored = append(restored, h.program)
	}
	return restored, nil
}

// restoreHook attaches the program of a link that was detached.
func (d *Datapath) restoreHook(h hook, detached link.Link) error {
	if detached == nil {
		return errors.New("its link is not held")
	}
	program, err := programOf(detached)
	if err != nil {
		return err
	}
	defer program.Close()
	// Moved aside it would wait for the next replacement to be removed.
	if err := os.Remove(filepath.Join(d.path("links"), h.program)); err != nil {
		return err
	}
	return programSet{h.program: program}.attachNew(d.path("links"), d.cfg.Cgroup, h)
}

// programOf returns the program of a link; one that is detached has it, too.
func programOf(l link.Link) (*ebpf.Program, error) {
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromID(info.Program)
}

// restoreDevices puts the programs of devices back in force. A device that is
// gone is left to SetDevices, which hears of it.
func (d *Datapath) restoreDevices() (restored []string, err error) {
	var errs []error
	for _, dev := range d.devices {
		if err := d.holdPrograms(hooksOf(dev)); err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", dev.Name, err))
			continue
		}
		for _, h := range hooksOf(dev) {
			if d.isInForce(dev, h) {
				continue
			}
			if _, err := net.InterfaceByIndex(int(dev.Index)); err != nil {
				break
			}
			if err := d.attachDevice(int(dev.Index), h, d.held.programs[h.program]); err != nil {
				errs = append(errs, fmt.Errorf("attach %s to device %s again: %w", h.program, dev.Name, err))
				continue
			}
			restored = append(restored, h.program+" on "+dev.Name)
		}
	}
	return restored, errors.Join(errs...)
}

// isInForce says whether a program is in force on a device, by a link or by a
// filter. Where that cannot be told it is taken for granted.
func (d *Datapath) isInForce(dev plan.Device, h deviceHook) bool {
	if l := d.held.links[devicePin(h.program, dev.Index)]; l != nil {
		return isOnDevice(l, dev.Index)
	}
	f := netdev.Filter{Index: int(dev.Index), In: h.in, Name: h.program}
	id, ok := programID(d.held.programs[h.program])
	if f.Program = uint32(id); !ok {
		return true
	}
	there, err := f.InForce()
	return err != nil || there
}
