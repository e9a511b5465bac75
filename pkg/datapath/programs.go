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
)

// hook is a program with where it attaches.
type hook struct {
	program string
	attach  ebpf.AttachType
}

// hooks are the programs with where they attach, in the order in which they
// come into force: what shows a frontend in place of a backend comes before
// what sends anybody to a backend.
var hooks = []hook{
	{"sock_release", ebpf.AttachCgroupInetSockRelease},
	{"getpeername4", ebpf.AttachCgroupInet4GetPeername},
	{"getpeername6", ebpf.AttachCgroupInet6GetPeername},
	{"recvmsg4", ebpf.AttachCGroupUDP4Recvmsg},
	{"recvmsg6", ebpf.AttachCGroupUDP6Recvmsg},
	{"sock_ops", ebpf.AttachCGroupSockOps},
	{"sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
	{"connect4", ebpf.AttachCGroupInet4Connect},
	{"connect6", ebpf.AttachCGroupInet6Connect},
}

// programSet is the loaded programs by name.
type programSet map[string]*ebpf.Program

// Close lets go of the programs; attached ones live on.
func (p programSet) Close() {
	for _, program := range p {
		program.Close()
	}
}

// keepers is how many of the hooks, from the first, only read and delete socket NAT
// entries.
const keepers = 5

// attachKeepers puts the programs in force that only read and delete entries, and pins
// their links below dir. Those that were there stay in force beside them, until
// removeStrays.
func (p programSet) attachKeepers(dir, cgroup string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for _, h := range hooks[:keepers] {
		if err := p.attachNew(dir, cgroup, h); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
		}
	}
	return nil
}

// attachOthers puts the other programs in force and pins their links below dir.
// A link that is there already changes its program in one step.
func (p programSet) attachOthers(dir, cgroup string) error {
	for _, h := range hooks[keepers:] {
		if err := p.attachOne(dir, cgroup, h); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
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
		if isAttachedTo(old, cgroup) && p[h.program] != nil {
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
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.attach, Program: program})
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

// isOurs says whether a pinned link is of a program of the object.
func isOurs(pin string) bool {
	return slices.ContainsFunc(hooks, func(h hook) bool { return h.program == pin }) || isDevicePin(pin)
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
// too, but some time later.
func detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", pin, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		return fmt.Errorf("detach %s: %w", pin, err)
	}
	return os.Remove(pin)
}

// isAttachedTo says whether a link is attached to the cgroup at a path.
func isAttachedTo(l link.Link, cgroup string) bool {
	info, err := l.Info()
	return err == nil && isOfCgroup(info, cgroup)
}

func isOfCgroup(l *link.Info, cgroup string) bool {
	var s unix.Stat_t
	if l.Cgroup() == nil || unix.Stat(cgroup, &s) != nil {
		return false
	}
	return l.Cgroup().CgroupId == s.Ino // the cgroup's ID is its inode number
}

// linksUse says whether every program is attached to the cgroup, and works on
// just these maps.
func linksUse(dir, cgroup string, maps *mapSet) bool {
	ids := maps.ids()
	for _, h := range hooks {
		l, err := link.LoadPinnedLink(filepath.Join(dir, h.program), nil)
		if err != nil {
			return false
		}
		uses := isAttachedTo(l, cgroup) && programUses(l, ids)
		l.Close()
		if !uses {
			return false
		}
	}
	return true
}

// programUses says whether the program of a link uses only maps with the given
// IDs, apart from those that the loader made.
func programUses(l link.Link, ids []ebpf.MapID) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	program, err := ebpf.NewProgramFromID(info.Program)
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
		return !slices.Contains(ids, id) && !isRodata(id)
	})
}

// isRodata says whether the map with an ID holds the load-time constants of a program.
func isRodata(id ebpf.MapID) bool {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return false
	}
	defer m.Close()
	info, err := m.Info()
	return err == nil && info.Frozen()
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
