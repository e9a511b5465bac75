package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/cgroup"
)

// ErrElsewhere says that programs are in force, and not below the root of pins that was named.
var ErrElsewhere = errors.New("programs of Headgate are in force on this node")

// CheckElsewhere returns an error unless all that is in force of Headgate is pinned below
// root, as far as it is met by sockets of this process and by devices of the network namespace
// of the calling thread: ErrElsewhere where some is not, and another where root is in no BPF file system.
func CheckElsewhere(root string) error {
	if err := checkRoot(root); err != nil {
		return fmt.Errorf("%w: name the --bpf-root of the agent; in a container that has it at another place, such as /host/sys/fs/bpf/headgate", err)
	}
	ours := pinnedPrograms(root)
	found, err := programsHere()
	if err != nil {
		return err
	}
	for _, id := range found {
		if !slices.Contains(ours, id) && isHeadgate(id) {
			return fmt.Errorf("%w, such as %s (number %d), and not pinned below %s: name the --bpf-root of the agent that has attached them", ErrElsewhere, programName(id), id, root)
		}
	}
	return nil
}

// programsHere returns what is attached where programs of Headgate are: to the cgroup of this
// process or one above it, and to the devices of the network namespace.
func programsHere() (all []ebpf.ProgramID, err error) {
	dir, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	found, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: makers[0].attach, QueryFlags: unix.BPF_F_QUERY_EFFECTIVE})
	if err != nil {
		return nil, fmt.Errorf("list the programs of %s: %w", dir.Name(), err)
	}
	for _, p := range found.Programs {
		all = append(all, p.ID)
	}
	devices, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, d := range devices {
		found, err := link.QueryPrograms(link.QueryOptions{Target: d.Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			continue // without tcx, or gone meanwhile
		}
		for _, p := range found.Programs {
			all = append(all, p.ID)
		}
	}
	return all, nil
}

// ownCgroup opens the cgroup of this process, or the highest that is seen from here.
func ownCgroup() (*os.File, error) {
	top, err := cgroup.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			if f, err := os.Open(filepath.Join(top, path)); err == nil {
				return f, nil
			}
		}
	}
	return os.Open(top)
}

// isHeadgate says whether a program is one of Headgate's, of this version or another: by its
// name, and that of a map that it reads.
func isHeadgate(id ebpf.ProgramID) bool {
	name := programName(id)
	isHook := name == makers[0].program || slices.ContainsFunc(deviceHooks, func(h deviceHook) bool { return h.program == name })
	return isHook && slices.Contains(mapsOf(id), "frontends")
}

// mapsOf returns the names of the maps of a program, as far as they and it are still there.
func mapsOf(id ebpf.ProgramID) (names []string) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		names = append(names, mapName(id))
	}
	return names
}

// mapName returns the name of a map, "" where it is gone.
func mapName(id ebpf.MapID) string {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return ""
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
