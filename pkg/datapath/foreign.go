package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
)

// Foreign is a program of another owner where programs of ours attach, or packets pass
// before they reach ours.
type Foreign struct {
	Hook string // such as "connect4" or "tcx in"
	Name string
	ID   uint32 // the kernel's of it
	// Exclusive lets no other program be attached to the cgroup at its hook.
	Exclusive bool
}

// ForeignSockets returns the programs of others that processes of a cgroup meet at the
// hooks of ours. Those that are pinned below root are ours.
func ForeignSockets(root, cgroup string) (all []Foreign, err error) {
	dir, err := os.Open(unified(cgroup))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	ours := pinnedPrograms(root)
	for _, h := range socketHooks(false) {
		exclusive, err := isClosed(dir.Name(), h.attach)
		if err != nil {
			return nil, fmt.Errorf("list the programs at %s of %s: %w", h.program, dir.Name(), err)
		}
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: h.attach, QueryFlags: unix.BPF_F_QUERY_EFFECTIVE})
		if err != nil {
			return nil, fmt.Errorf("list the programs at %s of %s: %w", h.program, dir.Name(), err)
		}
		for _, p := range found.Programs {
			if !slices.Contains(ours, p.ID) {
				all = append(all, Foreign{Hook: h.program, Name: programName(p.ID), ID: uint32(p.ID), Exclusive: exclusive})
			}
		}
	}
	return all, nil
}

// ForeignPackets returns those of others at a device.
func ForeignPackets(root string, index int) (all []Foreign, err error) {
	ours := pinnedPrograms(root)
	for _, h := range deviceKinds["device"] {
		found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.attach()})
		if err != nil {
			break // without tcx
		}
		hook := "tcx out"
		if h.in {
			hook = "tcx in"
		}
		for _, p := range found.Programs {
			if !slices.Contains(ours, p.ID) {
				all = append(all, Foreign{Hook: hook, Name: programName(p.ID), ID: uint32(p.ID)})
			}
		}
	}
	others, err := netdev.AttachedTo(index)
	for _, o := range others {
		if slices.Contains(ours, ebpf.ProgramID(o.Program)) {
			continue
		}
		name := programName(ebpf.ProgramID(o.Program))
		if o.Name != "" && !strings.HasPrefix(o.Name, name) {
			name += " (" + o.Name + ")"
		}
		all = append(all, Foreign{Hook: o.Hook, Name: name, ID: o.Program})
	}
	return all, err
}

// pinnedPrograms returns the programs of links that are pinned below root.
func pinnedPrograms(root string) (all []ebpf.ProgramID) {
	pins, err := filepath.Glob(filepath.Join(root, "links", "*"))
	if err != nil {
		return nil
	}
	for _, pin := range pins {
		if info, err := pinnedLink(root, filepath.Base(pin)); err == nil {
			all = append(all, info.Program)
		}
	}
	return all
}

// programName returns the name of a program as its owner has it, as far as the kernel keeps
// it whole.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return fmt.Sprintf("#%d", id)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil || info.Name == "" {
		return fmt.Sprintf("#%d", id)
	}
	if fn, err := info.FuncInfos(); err == nil && len(fn) > 0 && fn[0].Func != nil {
		return fn[0].Func.Name
	}
	return info.Name
}

// isClosed says whether a program at a cgroup, or at one above it, keeps others from being
// attached beside it: the nearest that has programs decides, as in the kernel.
func isClosed(dir string, at ebpf.AttachType) (bool, error) {
	own := true
	for ; checkFileSystem(dir, unix.CGROUP2_SUPER_MAGIC) == nil; dir = filepath.Dir(dir) {
		flags, count, err := attachFlags(dir, at)
		if err != nil {
			return false, err
		}
		switch {
		case count == 0:
		case flags&unix.BPF_F_ALLOW_MULTI != 0:
			return false, nil
		default:
			return own || flags&unix.BPF_F_ALLOW_OVERRIDE == 0, nil
		}
		own = false
	}
	return false, nil
}

// attachFlags asks how programs are attached to a cgroup itself, and how many there are.
func attachFlags(dir string, at ebpf.AttachType) (flags, count uint32, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	// What BPF_PROG_QUERY takes of union bpf_attr.
	query := struct {
		Target, Type, QueryFlags, AttachFlags uint32
		Programs                              uint64
		Count, _                              uint32
	}{Target: uint32(f.Fd()), Type: uint32(at)}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	if errno != 0 && !errors.Is(errno, unix.ENOSPC) { // there is no room for their IDs
		return 0, 0, errno
	}
	return query.AttachFlags, query.Count, nil
}
