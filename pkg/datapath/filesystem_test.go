package datapath_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// hideBPF hides what is at the usual place of the BPF file system, until the
// test ends, behind a mount with the propagation.
func hideBPF(tb testing.TB, propagation uintptr) {
	tb.Helper()
	dir := filepath.Dir(datapath.DefaultRoot)
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", propagation, ""); err != nil {
		tb.Fatal(err)
	}
}

func TestABPFFileSystemThatNobodyMountedIsMounted(t *testing.T) {
	cfg := config(t)
	hideBPF(t, unix.MS_SHARED)
	cfg.Root = datapath.DefaultRoot
	mustOpen(t, cfg).Close()
	if err := datapath.Cleanup(cfg.Root); err != nil {
		t.Error(err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(cfg.Root), &s); err != nil || s.Type != unix.BPF_FS_MAGIC {
		t.Errorf("file system of type %x, error %v, want one of BPF", s.Type, err)
	}
	if err := unix.Unmount(filepath.Dir(cfg.Root), 0); err != nil {
		t.Error(err)
	}
}

func TestABPFFileSystemThatWouldEndWithAContainerIsNotMounted(t *testing.T) {
	for name, propagation := range map[string]uintptr{"private": unix.MS_PRIVATE, "slave of a private one": unix.MS_SLAVE} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			hideBPF(t, propagation)
			cfg.Root = datapath.DefaultRoot
			d, err := datapath.Open(cfg)
			if err == nil {
				d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "mount -t bpf") {
				t.Errorf("open: %v, want an error that says what to mount", err)
			}
		})
	}
}

func TestCgroup2IsFoundWhereVersion1HasIt(t *testing.T) {
	cfg := config(t)
	cgroup := cfg.Cgroup
	cfg.Cgroup = t.TempDir()
	if _, err := datapath.Open(cfg); err == nil {
		t.Fatal("a directory without cgroup2 was taken")
	}
	if err := os.Symlink(cgroup, filepath.Join(cfg.Cgroup, "unified")); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, cfg).Attach(); err != nil {
		t.Error(err)
	}
}
