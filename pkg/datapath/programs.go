package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
)

// hook is a program with where it attaches.
type hook struct {
	program string
	attach  ebpf.AttachType
}

// The programs of sockets with where they attach, in the order in which they come into
// force: what shows a frontend in place of a backend comes before what sends anybody to
// a backend.
var (
	// keepers only read and delete socket NAT entries.
	keepers = []hook{
		{"sock_release", ebpf.AttachCgroupInetSockRelease},
		{"getpeername4", ebpf.AttachCgroupInet4GetPeername},
		{"getpeername6", ebpf.AttachCgroupInet6GetPeername},
		{"recvmsg4", ebpf.AttachCGroupUDP4Recvmsg},
		{"recvmsg6", ebpf.AttachCGroupUDP6Recvmsg},
	}
	// tracers note connections that fail, and watchers do where the kernel refuses
	// programs at tracepoints.
	tracers = []hook{
		{"tcp_retransmit", ebpf.AttachTraceRawTp},
		{"socket_error", ebpf.AttachTraceRawTp},
		{"tcp_destroy", ebpf.AttachTraceRawTp},
	}
	watchers = []hook{{"sock_ops", ebpf.AttachCGroupSockOps}}
	// makers make entries.
	makers = []hook{
		{"sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
		{"sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
		{"connect4", ebpf.AttachCGroupInet4Connect},
		{"connect6", ebpf.AttachCGroupInet6Connect},
	}
)

// socketHooks returns the programs of sockets.
func socketHooks(traced bool) []hook {
	if traced {
		return slices.Concat(keepers, tracers, makers)
	}
	return slices.Concat(keepers, watchers, makers)
}

// isTracer says whether a program is at a tracepoint, and not at the cgroup.
func (h hook) isTracer() bool { return h.attach == ebpf.AttachTraceRawTp }

// where says where a program attaches, for people.
func (h hook) where(cgroup string) string {
	if h.isTracer() {
		return "its tracepoint"
	}
	return cgroup
}

// programSet is the loaded programs by name.
type programSet map[string]*ebpf.Program

// Close lets go of the programs; attached ones live on.
func (p programSet) Close() {
	for _, program := range p {
		program.Close()
	}
}

// attachKeepers puts the programs in force that only read and delete entries, and pins
// their links below dir. Those that were there stay in force beside them, until
// removeStrays.
func (p programSet) attachKeepers(dir, cgroup string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for _, h := range keepers {
		if err := p.attachNew(dir, cgroup, h); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
		}
	}
	return nil
}

// attachOthers puts the other programs in force and pins their links below dir.
// A link that is there already changes its program in one step; those of tracepoints
// cannot, so that two programs note what fails until removeStrays.
func (p programSet) attachOthers(dir, cgroup string, traced bool) error {
	for _, h := range socketHooks(traced)[len(keepers):] {
		if err := p.attachOne(dir, cgroup, h); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, h.where(cgroup), err)
		}
	}
	return nil
}

func (p programSet) attachOne(dir, cgroup string, h hook) error {
	old, err := link.LoadPinnedLink(filepath.Join(dir, h.program), nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		defer old.Close()
		if !h.isTracer() && h.isInForce(old, cgroup) && p[h.program] != nil {
			return old.Update(p[h.program])
		}
	}
	return p.attachNew(dir, cgroup, h)
}

// attachNew attaches a program beside what there is, and pins its link in the
// place of that, which is moved aside.
func (p programSet) attachNew(dir, cgroup string, h hook) error {
	program := p[h.program]
	if program == nil {
		return errors.New("the object has no such program")
	}
	l, err := h.link(cgroup, program)
	if err != nil {
		return err
	}
	defer l.Close()
	pin, next := filepath.Join(dir, h.program), filepath.Join(dir, h.program+"_next")
	_ = os.Remove(next) // of a process that died here
	if err := l.Pin(next); err != nil {
		return err
	}
	if err := moveAside(pin); err != nil {
		return err
	}
	return os.Rename(next, pin)
}

// link attaches a program.
func (h hook) link(cgroup string, program *ebpf.Program) (link.Link, error) {
	if h.isTracer() {
		return link.AttachTracing(link.TracingOptions{Program: program, AttachType: h.attach})
	}
	return link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.attach, Program: program})
}

// moveAside gives the pin of a link a name that no other has, so that it stays
// in force until removeStrays, even if this process dies.
func moveAside(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return err
	}
	// A BPF file system takes no dots in names.
	return os.Rename(pin, fmt.Sprintf("%s_%d", pin, info.ID))
}

// isOurs says whether a pinned link is of a program of the object that is to be in force.
func (o *object) isOurs(pin string) bool {
	return slices.ContainsFunc(socketHooks(o.traced), func(h hook) bool { return h.program == pin }) || isDevicePin(pin)
}

// detachAll takes the links pinned in a directory out of force, those apart
// that are to be kept.
func detachAll(dir string, keep func(pin string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep(e.Name()) {
			continue
		}
		if err := detach(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// detach takes a pinned link out of force. Removing its last pin would do so
// too, but some time later: for one of a tracepoint there is no other way.
func detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", pin, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, link.ErrNotSupported) {
		return fmt.Errorf("detach %s: %w", pin, err)
	}
	return os.Remove(pin)
}

// isInForce says whether a link has a program where it attaches: to the cgroup at a path, or
// to a tracepoint. There it stays for as long as its link.
func (h hook) isInForce(l link.Link, cgroup string) bool {
	return h.isAttached(l, cgroupID(cgroup))
}

// isAttached says so of the cgroup with an ID.
func (h hook) isAttached(l link.Link, cgroup uint64) bool {
	info, err := l.Info()
	return err == nil && h.isOf(info, cgroup)
}

func (h hook) isOf(info *link.Info, cgroup uint64) bool {
	if h.isTracer() {
		return info.Type == link.RawTracepointType
	}
	// A link to a cgroup that was removed is to number 0, as is a path where there is none.
	return cgroup != 0 && info.Cgroup() != nil && info.Cgroup().CgroupId == cgroup
}

// cgroupID returns the ID of the cgroup at a path, which is its inode number; 0 where there
// is none.
func cgroupID(path string) uint64 {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return 0
	}
	return s.Ino
}

// linksUse says whether every program is attached, and works on just these maps, as those
// on devices do: only they use maps of flows.
func linksUse(dir, cgroup string, traced bool, maps *mapSet) bool {
	ids := maps.ids()
	if !devicesUse(dir, ids) {
		return false
	}
	for _, h := range socketHooks(traced) {
		l, err := link.LoadPinnedLink(filepath.Join(dir, h.program), nil)
		if err != nil {
			return false
		}
		uses := h.isInForce(l, cgroup) && linkUses(l, ids)
		l.Close()
		if !uses {
			return false
		}
	}
	return true
}

// devicesUse says whether every program in force on a device works on maps with these IDs.
// Filters are looked for where no device has a link.
func devicesUse(dir string, ids []ebpf.MapID) bool {
	pins, err := os.ReadDir(dir)
	pins = slices.DeleteFunc(pins, func(pin os.DirEntry) bool { return !isDevicePin(pin.Name()) })
	for _, pin := range pins {
		_, index, _ := devicePinOf(pin.Name())
		if !deviceUses(filepath.Join(dir, pin.Name()), index, ids) {
			return false
		}
	}
	return err == nil && (len(pins) > 0 || filtersUse(ids))
}

// deviceUses says so of the program of a pinned link. On a device that is gone none is.
func deviceUses(pin string, index uint32, ids []ebpf.MapID) bool {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return false
	}
	defer l.Close()
	return !isOnDevice(l, index) || linkUses(l, ids)
}

// filtersUse says so of programs that are in force by filters.
func filtersUse(ids []ebpf.MapID) bool {
	filters, err := netdev.Filters()
	for _, f := range filters {
		if !programUses(ebpf.ProgramID(f.Program), ids) {
			return false
		}
	}
	return err == nil
}

func linkUses(l link.Link, ids []ebpf.MapID) bool {
	info, err := l.Info()
	return err == nil && programUses(info.Program, ids)
}

// programUses says whether a program uses only maps with the given IDs, apart from those
// that the loader made.
func programUses(id ebpf.ProgramID, ids []ebpf.MapID) bool {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer program.Close()
	programInfo, err := program.Info()
	if err != nil {
		return false
	}
	used, ok := programInfo.MapIDs()
	if !ok {
		return false
	}
	return !slices.ContainsFunc(used, func(id ebpf.MapID) bool {
		return !slices.Contains(ids, id) && !isOfLoader(id)
	})
}

// isOfLoader says whether the loader made the map with an ID, for programs that it loaded
// together: their constants, and the variables that they share.
func isOfLoader(id ebpf.MapID) bool {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return false
	}
	defer m.Close()
	info, err := m.Info()
	return err == nil && info.Name != "" && isInternal(info.Name)
}

// ids returns the kernel's IDs of the maps.
func (s *mapSet) ids() []ebpf.MapID {
	var ids []ebpf.MapID
	for _, m := range s.byName {
		info, err := m.Info()
		if err != nil {
			continue
		}
		if id, ok := info.ID(); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// swapDirs puts a directory in the place of another in one step, and removes
// what stood there.
func swapDirs(next, current string) error {
	if !exists(current) {
		if err := os.Rename(next, current); err != nil {
			return fmt.Errorf("rename %s: %w", next, err)
		}
		return nil
	}
	if err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, current, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %s and %s: %w", next, current, err)
	}
	return os.RemoveAll(next)
}
