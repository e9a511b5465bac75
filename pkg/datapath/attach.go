package datapath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
)

// holdPrograms loads those programs of devices that are not there yet, and pins each beside
// the maps once it is verified.
func (d *Datapath) holdPrograms(hooks []deviceHook) error {
	var names []string
	for _, h := range hooks {
		if d.held.programs[h.program] == nil {
			names = append(names, h.program)
		}
	}
	if len(names) == 0 {
		return nil
	}
	loaded, err := d.object.loadPrograms(names, d.maps, func(name string, p *ebpf.Program) error {
		return pinProgram(p, d.path("maps"), name)
	})
	loaded.Close()
	return errors.Join(err, d.hold())
}

// devicePin is the name of the pin of a link of a program to a device.
func devicePin(program string, index uint32) string {
	return program + "_" + strconv.FormatUint(uint64(index), 10)
}

// devicePinOf returns the program and the index of the device that a pinned
// link is of, and whether it is of one.
func devicePinOf(pin string) (program string, index uint32, ok bool) {
	program, number, ok := cutLast(pin, "_")
	parsed, err := strconv.ParseUint(number, 10, 32)
	ours := slices.ContainsFunc(deviceHooks, func(h deviceHook) bool { return h.program == program })
	return program, uint32(parsed), ok && err == nil && ours
}

func isDevicePin(pin string) bool {
	_, _, ok := devicePinOf(pin)
	return ok
}

// attachDevice puts a program in force on a device, in place of the one that
// is there: by tcx, or by a filter where the kernel has none.
func (d *Datapath) attachDevice(index int, h deviceHook, program *ebpf.Program) error {
	pin := filepath.Join(d.path("links"), devicePin(h.program, uint32(index)))
	if !d.cfg.Filters {
		err := attachLink(pin, index, h, program)
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return errors.Join(err, dropFilter(index, h))
		}
	}
	if err := attachFilter(index, h, program); err != nil {
		return err
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// attachLink attaches by a link, of tcx or XDP, and pins it.
func attachLink(pin string, index int, h deviceHook, program *ebpf.Program) error {
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer old.Close()
		info, err := old.Info()
		if err == nil && isOfDevice(info, uint32(index)) {
			if id, ok := programID(program); ok && id == info.Program {
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
	l, err := h.link(index, program)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Pin(pin)
}

// attachFilter attaches by a filter, unless the program is there already.
func attachFilter(index int, h deviceHook, program *ebpf.Program) error {
	f := netdev.Filter{Index: index, In: h.in, Name: h.program}
	if id, ok := programID(program); ok {
		f.Program = uint32(id)
		if there, err := f.InForce(); err != nil || there {
			return err
		}
	}
	return netdev.SetFilter(f, program.FD())
}

// dropFilter removes the filter that a link has taken the place of.
func dropFilter(index int, h deviceHook) error {
	f := netdev.Filter{Index: index, In: h.in}
	if there, err := f.Find(); err != nil || !there {
		return err
	}
	return netdev.RemoveFilter(f)
}

func programID(program *ebpf.Program) (ebpf.ProgramID, bool) {
	info, err := program.Info()
	if err != nil {
		return 0, false
	}
	return info.ID()
}

// dropLinks detaches every program from devices that is not to be kept there.
// Removing the pin alone would not: the link is held.
func (d *Datapath) dropLinks(keep func(index uint32, program string) bool) error {
	pins, err := os.ReadDir(d.path("links"))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		program, index, ok := devicePinOf(pin.Name())
		if !ok || keep(index, program) {
			continue
		}
		if err := detach(filepath.Join(d.path("links"), pin.Name())); err != nil {
			return err
		}
	}
	return nil
}

// dropFilters does the same with filters.
func dropFilters(keep func(index uint32, program string) bool) error {
	filters, err := netdev.Filters()
	if err != nil {
		return err
	}
	for _, f := range filters {
		if keep(uint32(f.Index), f.Name) {
			continue
		}
		if err := netdev.RemoveFilter(f); err != nil {
			return err
		}
	}
	return nil
}

// replaceMakers puts the programs in force that make socket NAT entries and flows, and takes
// flows along until the last of those before them has ended.
func (d *Datapath) replaceMakers(programs programSet) error {
	moves, err := d.openMoves()
	if err != nil {
		return err
	}
	defer closeMoves(moves)
	if err := errors.Join(takeFlows(moves), d.takeAffinities(ebpf.UpdateAny)); err != nil {
		return err
	}
	if err := d.attachRest(programs, moves); err != nil {
		return err
	}
	if d.sharesState() {
		return nil
	}
	if err := waitGrace(); err != nil { // until no old program makes entries or flows
		return err
	}
	return takeLastFlows(moves)
}

// sharesState says whether what programs note of sockets, flows and clients stands in the same
// maps for all that are replaced: then nothing is to be taken along. It is so where maps grow, and where
// nothing was in force.
func (d *Datapath) sharesState() bool {
	if d.fresh {
		return true
	}
	for _, old := range d.old {
		for _, name := range []string{"socket_nat", flowTableMap, flowFactorsMap, affinitiesMap} {
			if old == nil || old.byName[name] == nil || d.maps.byName[name] == nil || !sameMap(old.byName[name], d.maps.byName[name]) {
				return false
			}
		}
	}
	return true
}

// attachRest attaches these programs. From here on the next agent needs these maps if this one
// dies, and those of agents that died here before. What begins while those of devices are
// replaced is known to one generation until the last step: it takes as little time as it can,
// for an agent that dies there leaves it so.
func (d *Datapath) attachRest(programs programSet, moves []*flowMove) error {
	links, next := d.path("links"), d.path("next")
	for _, step := range []func() error{
		d.setAside,
		func() error { return d.maps.pin(next) },
		d.announceMove,
		func() error { return programs.attachOthers(links, d.cfg.Cgroup, d.object.traced) },
		func() error { return programs.pinBeside(next) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	updates, err := programs.deviceUpdates(links)
	if err != nil {
		updates.Close()
		return err
	}
	defer updates.Close()
	for range 2 { // the first time takes longest
		if err := takeFlows(moves); err != nil {
			return err
		}
	}
	return errors.Join(takeWhile(moves, updates.do), takeFlows(moves))
}

// besideMaps are the programs that are not of sockets, which are pinned beside the maps once
// they are loaded: those of L3 devices and of pods are when the first such device comes.
var besideMaps = func() []string {
	names := slices.Clone(ranByAgent)
	for _, h := range deviceHooks {
		names = append(names, h.program)
	}
	return names
}()

// pinBeside pins those of them that there are.
func (p programSet) pinBeside(maps string) error {
	for _, name := range besideMaps {
		if p[name] == nil {
			continue
		}
		if err := pinProgram(p[name], maps, name); err != nil {
			return err
		}
	}
	return nil
}

// deviceUpdate puts a program of a device in force in place of its predecessor.
type deviceUpdate struct {
	what string
	do   func() error
	io.Closer
}

type deviceUpdates []deviceUpdate

// deviceUpdates finds where predecessors of programs of devices are in force: to replace them
// is one call of the kernel each then.
func (p programSet) deviceUpdates(links string) (all deviceUpdates, err error) {
	filters, err := netdev.Filters()
	if err != nil {
		return nil, err
	}
	for _, h := range deviceHooks {
		if p[h.program] == nil {
			continue // it is in force nowhere
		}
		if all, err = all.appendLinks(links, h, p[h.program]); err != nil {
			return all, err
		}
		for _, f := range filters {
			if f.Name == h.program {
				all = append(all, deviceUpdate{
					fmt.Sprintf("%s on device %d", h.program, f.Index),
					func() error { return netdev.SetFilter(f, p[h.program].FD()) }, io.NopCloser(nil),
				})
			}
		}
	}
	return all, nil
}

// appendLinks adds the devices that have the predecessor of a program by tcx.
func (u deviceUpdates) appendLinks(links string, h deviceHook, program *ebpf.Program) (deviceUpdates, error) {
	pins, err := filepath.Glob(filepath.Join(links, h.program+"_*"))
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return u, err
		}
		u = append(u, deviceUpdate{pin, func() error { return l.Update(program) }, l})
	}
	return u, err
}

// do replaces the programs. A device may be gone meanwhile.
func (u deviceUpdates) do() error {
	for _, one := range u {
		err := one.do()
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOLINK) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("update %s: %w", one.what, err)
		}
	}
	return nil
}

// Close lets go of the links.
func (u deviceUpdates) Close() {
	for _, one := range u {
		_ = one.Close()
	}
}

// pinProgram pins a program in a directory.
func pinProgram(p *ebpf.Program, dir, name string) error {
	c, err := p.Clone() // the program itself is not to count as pinned
	if err != nil {
		return fmt.Errorf("pin program %s: %w", name, err)
	}
	defer c.Close()
	if err := c.Pin(filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("pin program %s: %w", name, err)
	}
	return nil
}
