package traffic

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a cgroup2 directory that processes are started in.
type Cgroup struct {
	Path string
	dir  *os.File
}

// NewCgroup makes the directory name below the cgroup parent.
func NewCgroup(parent, name string) (*Cgroup, error) {
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %s", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open cgroup: %s", err), os.Remove(path))
	}
	return &Cgroup{Path: path, dir: dir}, nil
}

// Adopt makes cmd start inside the cgroup, so that it is there before its
// first instruction (clone3(2) with CLONE_INTO_CGROUP, Linux 5.7).
func (c *Cgroup) Adopt(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(c.dir.Fd())
}

// Close kills what runs in the cgroup and removes it.
func (c *Cgroup) Close() error {
	return errors.Join(c.dir.Close(), removeCgroup(c.Path))
}

// removeCgroup kills what runs in a cgroup and removes it. A process that dies
// holds its cgroup for a moment, so this tries for two seconds.
func removeCgroup(path string) error {
	// The file is there from Linux 5.14 on. Without it the removal below
	// says that the cgroup is busy.
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	var err error
	for range 200 {
		if err = unix.Rmdir(path); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %s", path, err)
	}
	return nil
}
