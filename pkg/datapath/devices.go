package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// ErrNoTCX says that the kernel cannot balance packets.
var ErrNoTCX = fmt.Errorf("this kernel has no tcx (requires >= 6.6), so clients outside the node are not served: %w", errors.ErrUnsupported)

// deviceHooks are the programs of every device.
var deviceHooks = []struct {
	program string
	attach  ebpf.AttachType
}{
	{"device_out", ebpf.AttachTCXEgress},
	{"device_in", ebpf.AttachTCXIngress},
}

// SetDevices attaches the programs to these devices and to no others. A device
// that refuses is in the error; the others are attached all the same. It is
// ErrNoTCX where the kernel cannot. Attach must have been called before.
func (d *Datapath) SetDevices(devices []plan.Device) error {
	programs, err := d.devicePrograms()
	if err != nil {
		return err
	}
	defer programs.Close()
	wanted := map[uint32]plan.Device{}
	var errs []error
	for _, dev := range devices {
		wanted[dev.Index] = dev
		if err := d.setDevice(dev, programs); err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", dev.Name, err))
		}
	}
	return errors.Join(append(errs, d.dropDevices(wanted))...)
}

// setDevice writes the addresses of a device, then attaches to it.
func (d *Datapath) setDevice(dev plan.Device, programs devicePrograms) error {
	key, value := dev.Index, encodeDevice(dev)
	var old headgateDevice
	err := d.maps.byName["devices"].Lookup(key, &old)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if err != nil || old != value {
		d.maps.about.at(0).Writes++
		if err := d.maps.byName["devices"].Put(key, value); err != nil {
			return err
		}
	}
	for _, h := range deviceHooks {
		if err := attachDevice(d.devicePin(h.program, dev.Index), int(dev.Index), h.attach, programs[h.program]); err != nil {
			return fmt.Errorf("attach %s: %w", h.program, err)
		}
	}
	return nil
}

// devicePin is where the link of a program to a device is pinned.
func (d *Datapath) devicePin(program string, index uint32) string {
	return filepath.Join(d.path("links"), program+"_"+strconv.FormatUint(uint64(index), 10))
}

// devicePinIndex returns the index of the device that a pinned link is of, and
// whether it is of one.
func devicePinIndex(pin string) (uint32, bool) {
	program, index, ok := cutLast(pin, "_")
	number, err := strconv.ParseUint(index, 10, 32)
	return uint32(number), ok && err == nil && strings.HasPrefix(program, "device_")
}

func isDevicePin(pin string) bool {
	_, ok := devicePinIndex(pin)
	return ok
}

// attachDevice puts a program in force on a device, in place of the one that
// is there.
func attachDevice(pin string, index int, attach ebpf.AttachType, program *ebpf.Program) error {
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer old.Close()
		info, err := old.Info()
		if err == nil && info.TCX() != nil && info.TCX().Ifindex == uint32(index) {
			if sameProgram(info.Program, program) {
				return nil
			}
			return old.Update(program)
		}
		// The device is gone, and another one has its index.
		if err := os.Remove(pin); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: attach})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return ErrNoTCX
	}
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Pin(pin)
}

func sameProgram(id ebpf.ProgramID, program *ebpf.Program) bool {
	info, err := program.Info()
	if err != nil {
		return false
	}
	own, ok := info.ID()
	return ok && own == id
}

// dropDevices detaches from devices that are not wanted, and forgets them.
func (d *Datapath) dropDevices(wanted map[uint32]plan.Device) error {
	pins, err := os.ReadDir(d.path("links"))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		index, ok := devicePinIndex(pin.Name())
		if _, keep := wanted[index]; !ok || keep {
			continue
		}
		if err := os.Remove(filepath.Join(d.path("links"), pin.Name())); err != nil {
			return err
		}
	}
	var key uint32
	var value headgateDevice
	known := map[uint32]bool{}
	entries := d.maps.byName["devices"].Iterate()
	for entries.Next(&key, &value) {
		known[key] = true
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
	return entries.Err()
}

// devicePrograms are the programs in force for devices, by name.
type devicePrograms map[string]*ebpf.Program

// Close lets go of the programs.
func (p devicePrograms) Close() {
	for _, program := range p {
		program.Close()
	}
}

// devicePrograms opens the programs that Attach has pinned beside the maps.
func (d *Datapath) devicePrograms() (devicePrograms, error) {
	out := devicePrograms{}
	for _, h := range deviceHooks {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(d.path("maps"), h.program), nil)
		if err != nil {
			out.Close()
			return nil, fmt.Errorf("open pinned program %s: %w", h.program, err)
		}
		out[h.program] = p
	}
	return out, nil
}

// pinForDevices pins the programs of devices beside the maps, and puts them in
// force on the devices that have their predecessors.
func (p *programSet) pinForDevices(maps, links string) error {
	for _, h := range deviceHooks {
		program := p.c.Programs[h.program]
		c, err := program.Clone()
		if err != nil {
			return err
		}
		err = c.Pin(filepath.Join(maps, h.program))
		c.Close()
		if err != nil {
			return fmt.Errorf("pin program %s: %w", h.program, err)
		}
		pins, err := filepath.Glob(filepath.Join(links, h.program+"_*"))
		if err != nil {
			return err
		}
		for _, pin := range pins {
			l, err := link.LoadPinnedLink(pin, nil)
			if err != nil {
				return err
			}
			err = l.Update(program)
			l.Close()
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOLINK) {
				return fmt.Errorf("update %s: %w", pin, err)
			}
		}
	}
	return nil
}
