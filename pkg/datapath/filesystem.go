package datapath

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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
	if root != bpfMount && !strings.HasPrefix(filepath.Clean(root), bpfMount+"/") {
		return nil
	}
	if checkFileSystem(bpfMount, unix.BPF_FS_MAGIC) == nil {
		return nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	if !isShared(f, bpfMount) {
		return nil // what to do about it is said when root is checked
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("bpf", bpfMount, "bpf", flags, "mode=700"); err != nil {
		return fmt.Errorf("mount a BPF file system at %s: %w", bpfMount, err)
	}
	return nil
}

// isShared says whether what is mounted at a path shows up in other mount
// namespaces, by the lines of proc(5) mountinfo: the mount that holds the path
// is the longest, and of equal ones the last.
func isShared(mountinfo io.Reader, path string) bool {
	shared, longest := false, 0
	for lines := bufio.NewScanner(mountinfo); lines.Scan(); {
		mount, _, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if len(fields) < 6 {
			continue
		}
		at := unescapeMount(fields[4])
		if !holds(at, path) || len(at) < longest {
			continue
		}
		longest, shared = len(at), false
		for _, option := range fields[6:] {
			shared = shared || strings.HasPrefix(option, "shared:")
		}
	}
	return shared
}

func holds(dir, path string) bool {
	return dir == path || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
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
