package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrBusy says that another agent has the node.
var ErrBusy = errors.New("another headgate agent runs on this node")

// oldestKernel is the oldest kernel with everything that the object needs.
const oldestKernel = "6.1"

// CheckMachine returns what keeps the datapath from being loaded, and what to
// do about it. Open begins with it.
func CheckMachine(cfg Config) error {
	cfg.Cgroup = unified(cfg.Cgroup)
	if err := checkCapabilities(); err != nil {
		return fmt.Errorf("%w: run it with sudo", err)
	}
	if err := checkCgroup(cfg.Cgroup); err != nil {
		return fmt.Errorf("%w: name a directory in a cgroup2 file system with --cgroup", err)
	}
	if err := mountBPF(cfg.Root); err != nil {
		return err
	}
	if err := checkRoot(cfg.Root); err != nil {
		return fmt.Errorf("%w: mount -t bpf bpf /sys/fs/bpf on the node, have a privileged agent do it (privileged: true in the chart, deploy/overlays/privileged), or name a directory in one with --bpf-root", err)
	}
	return nil
}

// checkCapabilities returns an error unless this process may do all that is to
// be done. With CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON programs can be loaded
// and attached. But then the next agent cannot read how pinned maps are laid out,
// and loses their socket NAT entries, and no namespace of a pod can be entered. For these the kernel asks CAP_SYS_ADMIN, which contains the others
// (capabilities(7)).
func checkCapabilities() error {
	can, err := capable(unix.CAP_SYS_ADMIN)
	if err != nil {
		return err
	}
	if !can {
		return errors.New("no CAP_SYS_ADMIN, which loading and reading back BPF programs needs")
	}
	return nil
}

// capable says whether this thread has a capability, by its number below 32.
func capable(number uint) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return data[0].Effective&(1<<number) != 0, nil
}

// checkRoot returns an error unless root is, or can be made, in a BPF file
// system.
func checkRoot(root string) error {
	dir := filepath.Clean(root)
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	if err := checkFileSystem(dir, unix.BPF_FS_MAGIC); err != nil {
		return fmt.Errorf("%s is in no BPF file system", root)
	}
	return nil
}

func checkFileSystem(path string, magic int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	if s.Type != magic {
		return errors.New("another kind of file system")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lockPatiently locks a directory, and gives whoever just looks whether it is
// locked the time to let go of it.
func lockPatiently(dir string) (*os.File, error) {
	for range 20 {
		f, err := lock(dir)
		if !errors.Is(err, ErrBusy) {
			return f, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return lock(dir)
}

// lock opens a directory and locks it for as long as the file is open.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: it holds %s; stop it first", ErrBusy, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// lockedDown says whether programs must not read the kernel's memory
// (kernel_lockdown(7)).
func lockedDown() bool {
	mode, err := os.ReadFile("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(string(mode), "[confidentiality]")
}

// explainLoad adds to an error from loading the object what the kernel lacks.
func explainLoad(err error) error {
	release, e := kernelRelease()
	if e != nil {
		return err
	}
	return explainLoadOn(release, err)
}

// explainLoadOn does so for a kernel of the given release.
func explainLoadOn(release string, err error) error {
	var verifier *ebpf.VerifierError
	if olderThan(release, oldestKernel) && (errors.As(err, &verifier) || errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)) {
		return tooOld(release)
	}
	return fmt.Errorf("load the BPF object: %w", err)
}

// olderThan compares the first two numbers of kernel releases.
func olderThan(release, than string) bool {
	var a, b, c, d int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	_, _ = fmt.Sscanf(than, "%d.%d", &c, &d) // a constant of this program
	return a < c || a == c && b < d
}

// waitGrace returns when no program that runs now runs any more. Programs run
// in RCU read sections, and the kernel does this command by waiting for an RCU
// grace period (membarrier(2), MEMBARRIER_CMD_GLOBAL).
func waitGrace() error {
	const global = 1
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return fmt.Errorf("wait for a grace period: membarrier: %w", errno)
	}
	return nil
}
