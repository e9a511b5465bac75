package datapath

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// bpfMount is where every distribution mounts the BPF file system.
const bpfMount = "/sys/fs/bpf"

// mountBPF mounts a BPF file system at its usual place if root is to be there
// and nobody has mounted it.
//
// It does so only where the mount reaches the mount namespace of the machine.
// In one of a container it would end with the container, and all that is pinned
// would be out of force without anybody having said so.
func mountBPF(root string) error {
	if !isBelowMount(root) {
		return nil
	}
	if checkFileSystem(bpfMount, unix.BPF_FS_MAGIC) == nil {
		return nil
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(bpfMount))
	if err != nil {
		return err
	}
	if !isShared(mounts) {
		return nil // what to do about it is said when root is checked
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("bpf", bpfMount, "bpf", flags, "mode=700"); err != nil {
		return fmt.Errorf("mount a BPF file system at %s: %w", bpfMount, err)
	}
	return nil
}

// isBelowMount says whether a path is at the usual place of the BPF file system.
func isBelowMount(root string) bool {
	return root == bpfMount || strings.HasPrefix(filepath.Clean(root), bpfMount+"/")
}

// isShared says whether the innermost of mounts, each of which holds the same
// path, shows up in other mount namespaces. Of equal ones it is the last.
func isShared(mounts []*mountinfo.Info) bool {
	shared, longest := false, 0
	for _, m := range mounts {
		if len(m.Mountpoint) >= longest {
			longest, shared = len(m.Mountpoint), strings.Contains(m.Optional, "shared:")
		}
	}
	return shared
}

// unified returns the cgroup2 directory that is meant by one where control
// groups are mounted: the directory, or where version 1 has it, unified in it,
// as systemd's hybrid mode does.
func unified(dir string) string {
	in := filepath.Join(dir, "unified")
	if checkFileSystem(dir, unix.CGROUP2_SUPER_MAGIC) != nil && checkFileSystem(in, unix.CGROUP2_SUPER_MAGIC) == nil {
		return in
	}
	return dir
}
