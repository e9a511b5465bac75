package traffic

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
