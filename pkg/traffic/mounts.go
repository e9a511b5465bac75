package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoCgroup2 is returned where no cgroup2 hierarchy is mounted.
var ErrNoCgroup2 = errors.New("no cgroup2 is mounted: mount -t cgroup2 none /sys/fs/cgroup")

// FindCgroup2 returns where the cgroup2 hierarchy is mounted. It is
// /sys/fs/cgroup on most machines and another place on hybrid ones.
func FindCgroup2() (string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2: %s", err)
	}
	defer file.Close()
	path, err := firstMount(file, "cgroup2")
	if err != nil {
		return "", fmt.Errorf("find cgroup2: %s", err)
	}
	if path == "" {
		return "", ErrNoCgroup2
	}
	return path, nil
}

// firstMount returns the first mount point of a file system type in r, which
// has the format of /proc/self/mountinfo (proc_pid_mountinfo(5)), "" if none.
func firstMount(r io.Reader, fsType string) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		mount, source, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !found || len(fields) < 5 {
			continue
		}
		if kind, _, _ := strings.Cut(source, " "); kind == fsType {
			return mountEscapes.Replace(fields[4]), nil
		}
	}
	return "", lines.Err()
}

// mountEscapes undoes what the kernel does to characters that would break a
// line of mountinfo.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// MountBPF mounts a BPF file system of its own on dir, which must exist.
// Unmounting it drops everything pinned there.
func MountBPF(dir string) error {
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount a BPF file system on %s: %s", dir, err)
	}
	return nil
}

// Unmount takes away what is mounted on dir. A dir where nothing is mounted,
// or that is not there, is no error.
func Unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %s", dir, err)
	}
	return nil
}
