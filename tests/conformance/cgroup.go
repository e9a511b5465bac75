package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A hierarchy is a tree of control groups as this machine has mounted it:
// cgroup2 alone, or several of version 1 and cgroup2 beside them.
type hierarchy struct {
	mount   string
	unified bool   // cgroup2
	options string // of mount(8), to mount it again
}

func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			continue
		}
		switch f[2] {
		case "cgroup2":
			all = append(all, hierarchy{mount: f[1], unified: true})
		case "cgroup":
			var keep []string
			for o := range strings.SplitSeq(f[3], ",") {
				if o != "rw" && o != "nosuid" && o != "nodev" && o != "noexec" && o != "relatime" {
					keep = append(keep, o)
				}
			}
			all = append(all, hierarchy{mount: f[1], options: strings.Join(keep, ",")})
		}
	}
	return all, nil
}

// cgroup is the name of a node's control group.
func (l *lab) cgroup(node string) string { return l.Name + "/" + node }

// makeCgroups makes a control group in every hierarchy, ready for kubelets.
func makeCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		path := h.mount
		for part := range strings.SplitSeq(name, "/") {
			parent := path
			path = filepath.Join(path, part)
			if h.unified {
				delegate(parent)
			}
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil && !h.unified {
					if err := os.WriteFile(filepath.Join(path, file), value, 0o644); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// delegate hands every controller of a group of cgroup2 to those below it.
// What cannot be handed on is the kubelet's to complain about.
func delegate(group string) {
	controllers, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return
	}
	for c := range strings.FieldsSeq(string(controllers)) {
		_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

// joinCgroups moves this process into a control group. With cgroup2 alone, a
// group that has others below it may have no processes of its own.
func joinCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		group := filepath.Join(h.mount, name)
		if leaf := filepath.Join(group, "init"); exists(leaf) {
			group = leaf
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes those of this run. The last processes take a moment
// to be gone.
func (l *lab) removeCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		root := filepath.Join(h.mount, l.Name)
		for try := 0; exists(root); try++ {
			if err = removeTree(root); err == nil {
				break
			}
			if try == 50 {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func removeTree(group string) error {
	entries, err := os.ReadDir(group)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(group); err != nil {
		return &fs.PathError{Op: "remove control group", Path: group, Err: err}
	}
	return nil
}
