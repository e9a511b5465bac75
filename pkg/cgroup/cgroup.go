// Package cgroup finds control groups of version 2.
package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/moby/sys/mountinfo"
)

// ErrNone says that no cgroup2 file system is mounted.
var ErrNone = errors.New("no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup")

// Root returns where the cgroup2 file system is mounted: /sys/fs/cgroup on most
// machines, and another place on hybrid ones. It returns ErrNone where it is not.
func Root() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup2: %w", err)
	}
	defer f.Close()
	return rootIn(f)
}

// rootIn finds the first cgroup2 file system in the lines of proc(5) mountinfo.
func rootIn(r io.Reader) (string, error) {
	mounts, err := mountinfo.GetMountsFromReader(r, mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return "", fmt.Errorf("find cgroup2: %w", err)
	}
	if len(mounts) == 0 {
		return "", ErrNone
	}
	return mounts[0].Mountpoint, nil
}
