package cgroup

import (
	"errors"
	"strings"
	"testing"
)

func TestTheRootIsTheFirstMountOfTheType(t *testing.T) {
	const (
		v1     = "35 31 0:32 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n"
		hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		pure   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
		spaced = `30 23 0:26 / /mnt/a\040b rw - cgroup2 cgroup2 rw` + "\n"
		named  = "30 23 0:26 / /mnt/cgroup2 rw - tmpfs cgroup2 rw\n"
	)
	for _, tc := range []struct {
		name, mountinfo, want string
	}{
		{"where it is the only hierarchy", pure, "/sys/fs/cgroup"},
		{"on a hybrid machine", v1 + hybrid, "/sys/fs/cgroup/unified"},
		{"the first of two", pure + hybrid, "/sys/fs/cgroup"},
		{"with escaped characters in its path", spaced, "/mnt/a b"},
		{"but not by the name of what is mounted", named, ""},
		{"and not where there is none", v1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := rootIn(strings.NewReader(tc.mountinfo))
			if got != tc.want || errors.Is(err, ErrNone) != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}
