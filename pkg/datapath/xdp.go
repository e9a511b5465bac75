package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// driverHook repeats at the driver of a device what the programs of devices did to the last
// packet of a flow. It only ever does less than these: a device where it cannot be attached
// works as without it.
var driverHook = deviceHook{program: "uplink", in: true, driver: true}

// expressMap holds what is repeated, see bpf/flow/express.h.
const expressMap = "express"

// expressWays is how many entries a set has room for.
const expressWays = uint32(len(headgateExpressSet{}.Way))

// possibleCPUs is how many CPUs the machine can have at the most.
var possibleCPUs = sync.OnceValue(func() int {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return 1
	}
	return n
})

// expressSets returns how many sets each CPU has, 0 where nothing is repeated. All of them
// together have room for as many entries as there are directions of flows, two for each that
// is needed: the flows of one CPU may be more than those of another.
func (c Config) expressSets() uint32 {
	if !c.XDP && !c.Redirect {
		return 0
	}
	return max(1, c.Flows/expressWays/uint32(possibleCPUs()))
}

// driverPrograms are the programs of drivers that are loaded.
func (c Config) driverPrograms() []string {
	if !c.XDP {
		return nil
	}
	return []string{driverHook.program}
}

// newEpoch ends the force of what is repeated. It is to be called after what was written.
func (s *mapSet) newEpoch() { atomic.AddUint32(&s.about.at(0).Epoch, 1) }

// isNoDriverPin says whether a pinned link is none of the program of drivers.
func isNoDriverPin(pin string) bool {
	program, _, ok := devicePinOf(pin)
	return !ok || program != driverHook.program
}

func (d *Datapath) wantsDriver(dev plan.Device) bool {
	return d.cfg.XDP && dev.XDP && !dev.Pod && !dev.L3
}

// retireDrivers sees to it that no driver is given frames to send any more that is about to be
// left alone. What TC sends by such a device is repeated no more.
func (d *Datapath) retireDrivers(wanted map[uint32]plan.Device) error {
	retired := map[uint32]headgateDevice{}
	err := walk(d.maps.byName["devices"], func(index *uint32, value *headgateDevice) error {
		if value.Flags&headgateDeviceFlagDEVICE_XDP != 0 && !d.wantsDriver(wanted[*index]) {
			retired[*index] = *value
		}
		return nil
	})
	for index, value := range retired {
		value.Flags &^= driverFlags
		err = errors.Join(err, d.putDevice(index, value))
	}
	return err
}

// setDrivers attaches to the drivers of devices that are to have the program and have not, and
// reports those that do not take it: never more than that. It returns to which it was attached
// again.
func (d *Datapath) setDrivers() (restored []string) {
	why, mute := map[string]string{}, map[uint32]bool{}
	for _, dev := range d.devices {
		if dev.NoXDP != "" {
			why[dev.Name] = dev.NoXDP
		}
		if !d.wantsDriver(dev) || d.isInForce(dev, driverHook) {
			continue
		}
		before, _ := d.device(dev.Index)
		if err := d.setDriver(dev); err != nil {
			why[dev.Name], mute[dev.Index] = err.Error(), errors.Is(err, errMute)
		} else if before.Flags&driverFlags == headgateDeviceFlagDEVICE_XDP {
			restored = append(restored, driverHook.program+" on "+dev.Name)
		}
	}
	if d.cfg.ReportXDP != nil && (d.noXDP == nil || !maps.Equal(d.noXDP, why)) {
		d.cfg.ReportXDP(maps.Clone(why))
	}
	d.noXDP, d.mute = why, mute
	return restored
}

// errMute says that a driver has nothing for us.
var errMute = errors.New("the driver sends no frames of other devices (no ndo_xdp_xmit)")

// setDriver attaches to the driver of a device, and then says so to those who have packets for
// it to repeat. A driver may say only with a program that it sends frames; many set their queues up
// anew for one, and some take the link down: one that is mute is not tried over and over. The
// error is for people.
func (d *Datapath) setDriver(dev plan.Device) error {
	if d.mute[dev.Index] && !netdev.SendsXDP(int(dev.Index)) {
		return errMute
	}
	if err := d.holdPrograms([]deviceHook{driverHook}); err != nil {
		return fmt.Errorf("the kernel refuses the program: %w", err)
	}
	pin := filepath.Join(d.path("links"), devicePin(driverHook.program, dev.Index))
	err := attachLink(pin, int(dev.Index), driverHook, d.held.programs[driverHook.program])
	if isTaken(err) && netdev.SendsXDP(int(dev.Index)) {
		return errors.Join(d.whyNoDriver(dev, err), d.setDriverFlags(dev, driverFlags))
	}
	if err != nil {
		return d.whyNoDriver(dev, err)
	}
	if !netdev.SendsXDP(int(dev.Index)) {
		return errors.Join(errMute, detach(pin))
	}
	return errors.Join(d.setDriverFlags(dev, headgateDeviceFlagDEVICE_XDP), d.hold())
}

// driverFlags say of a device that its driver sends frames, and that it is a program of others
// that may call ours.
const driverFlags = headgateDeviceFlagDEVICE_XDP | headgateDeviceFlagDEVICE_TAKEN

// setDriverFlags gives a device these of them.
func (d *Datapath) setDriverFlags(dev plan.Device, flags headgateDeviceFlag) error {
	value, err := d.device(dev.Index)
	if err != nil || value.Flags&driverFlags == flags {
		return err
	}
	value.Flags = value.Flags&^driverFlags | flags
	return d.putDevice(dev.Index, value)
}

// isTaken says whether a driver has a program of others.
func isTaken(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

// whyNoDriver says why a program cannot be attached to a driver, and what to do.
func (d *Datapath) whyNoDriver(dev plan.Device, err error) error {
	switch {
	case isTaken(err):
		return fmt.Errorf("another XDP program is there%s: remove it, or have it call %s by a tail call",
			otherDriver(int(dev.Index)), filepath.Join(d.path("maps"), driverHook.program))
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the driver does not take it, as the device is: %w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
		return errors.New("the device is gone")
	default:
		return err
	}
}

// otherDriver names the program that a driver has, "" where that cannot be told.
func otherDriver(index int) string {
	others, err := netdev.AttachedTo(index)
	if err != nil {
		return ""
	}
	for _, o := range others {
		if o.Hook == "xdp" {
			return fmt.Sprintf(", %s (ID %d)", programName(ebpf.ProgramID(o.Program)), o.Program)
		}
	}
	return ""
}
