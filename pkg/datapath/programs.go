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
	{"sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
	{"connect4", ebpf.AttachCGroupInet4Connect},
	{"connect6", ebpf.AttachCGroupInet6Connect},
}

// programSet is the loaded programs. A nil one is of nothing.
type programSet struct{ c *ebpf.Collection }

func newProgramSet(c *ebpf.Collection) *programSet { return &programSet{c} }

// Close lets go of the programs; attached ones live on.
func (p *programSet) Close() {
	if p != nil {
		p.c.Close()
	}
}

// attachRelease puts the program in force that forgets promises, and pins its
// link below dir. It returns the link that was there, which stays in force until
// it is closed; nil if there was none.
func (p *programSet) attachRelease(dir, cgroup string) (*heldLink, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	h := hooks[0]
	old, err := link.LoadPinnedLink(filepath.Join(dir, h.program), nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
	}
	held := &heldLink{old}
	if err := p.attachNew(dir, cgroup, h); err != nil {
		held.Close()
		return nil, fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
	}
	return held, nil
}

// heldLink is a link that has no pin any more.
type heldLink struct{ link link.Link }

// Close puts the program of the link out of force.
func (l *heldLink) Close() {
	if l.link != nil {
		l.link.Close()
	}
}

// attachOthers puts the other programs in force and pins their links below dir.
// A link that is there already changes its program in one step.
func (p *programSet) attachOthers(dir, cgroup string) error {
	for _, h := range hooks[1:] {
		if err := p.attachOne(dir, cgroup, h); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, cgroup, err)
		}
	}
	return nil
}

func (p *programSet) attachOne(dir, cgroup string, h hook) error {
	old, err := link.LoadPinnedLink(filepath.Join(dir, h.program), nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		defer old.Close()
		if isAttachedTo(old, cgroup) && p.c.Programs[h.program] != nil {
			return old.Update(p.c.Programs[h.program])
		}
	}
	return p.attachNew(dir, cgroup, h)
}

// attachNew attaches a program beside what there is, and pins its link in the
// place of that.
func (p *programSet) attachNew(dir, cgroup string, h hook) error {
	program := p.c.Programs[h.program]
	if program == nil {
		return errors.New("the object has no such program")
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.attach, Program: program})
	if err != nil {
		return err
	}
	defer l.Close()
	// Pinned beside and moved over: at no time is neither link there.
	next := nextPin(dir, h)
	_ = os.Remove(next) // of a process that died here
	if err := l.Pin(next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, h.program))
}

// nextPin is where a link is pinned that is to take the place of another. A BPF
// file system takes no dots in names.
func nextPin(dir string, h hook) string { return filepath.Join(dir, h.program+"_next") }

// isAttachedTo says whether a link is attached to the cgroup at a path.
func isAttachedTo(l link.Link, cgroup string) bool {
	info, err := l.Info()
	if err != nil || info.Cgroup() == nil {
		return false
	}
	var s unix.Stat_t
	if err := unix.Stat(cgroup, &s); err != nil {
		return false
	}
	return info.Cgroup().CgroupId == s.Ino // the cgroup's ID is its inode number
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

// isRodata says whether the map with an ID holds the knobs of a program.
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
