// Package testenv gives privileged tests a machine of their own: the test
// binary runs itself again in a new network namespace, with a private mount of
// a BPF file system and in a cgroup of its own. All of it is gone when the tests
// end.
package testenv

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/datapath"
)

// Names of environment variables: the first is for people and CI, the others
// tell the inner run what the outer has made.
const (
	requireVar = "HEADGATE_REQUIRE_PRIVILEGED"
	cgroupVar  = "HEADGATE_TEST_CGROUP"
	bpffsVar   = "HEADGATE_TEST_BPFFS"
	// stateVar tells agents where to keep what outlives them.
	stateVar = "STATE_DIRECTORY"
)

// Lacks skips a test for what the kernel of this machine has not. Those of tests/kernels/run have all that tests need:
// there it fails.
func Lacks(tb testing.TB, what string, err error) {
	tb.Helper()
	if os.Getenv("HEADGATE_KERNELS") != "" {
		tb.Fatalf("this kernel has no %s: %v", what, err)
	}
	tb.Skipf("this kernel has no %s (%v): tests/kernels/run tries others, which have", what, err)
}

// Runner is what runs in a machine of its own: a *testing.M, or a benchmark.
type Runner interface {
	// Run returns the exit code of the process.
	Run() int
}

// Main runs the tests of a package, in a machine of their own if this is root.
// It belongs into TestMain, as os.Exit(testenv.Main(m)).
func Main(m Runner) int {
	if os.Geteuid() != 0 || os.Getenv(cgroupVar) != "" && os.Getenv(bpffsVar) != "" {
		return m.Run()
	}
	if os.Getenv(cgroupVar) != "" {
		return inner(m)
	}
	code, err := outer()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	return code
}

// outer runs this binary again with the same arguments.
func outer() (int, error) {
	root, err := cgroup.Root()
	if err != nil {
		return 0, err
	}
	cgroup, err := os.MkdirTemp(root, "headgate-test-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(cgroup)
	dir, err := os.Open(cgroup)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	state, err := os.MkdirTemp("", "headgate-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(state)
	cmd.Env = append(os.Environ(), cgroupVar+"="+cgroup, stateVar+"="+state)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UseCgroupFD: true,
		CgroupFD:    int(dir.Fd()),
		Pdeathsig:   syscall.SIGKILL,
	}
	err = cmd.Run()
	if err := os.Remove(cgroup); err != nil {
		return 0, fmt.Errorf("a process or a cgroup is left behind: %w", err)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// inner sets up what is private to this process, runs the tests, and fails if
// they leave anything behind.
func inner(m Runner) int {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	code := m.Run()
	removeAgentBinary()
	if fuzzing() {
		return code
	}
	for _, l := range leaks() {
		fmt.Fprintln(os.Stderr, "testenv: left behind:", l)
		code = max(code, 1)
	}
	return code
}

// fuzzing says whether this process has others feed a fuzz target. When the time is over
// the testing package kills one that takes more than two seconds to end, as on a busy
// machine. What it had pinned stays then, until the machine of the tests is gone: no
// mistake of the test.
func fuzzing() bool {
	target := flag.Lookup("test.fuzz") // nil in a benchmark
	return target != nil && target.Value.String() != ""
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Over a directory that is always there: nobody else sees the mount.
	const bpffs = "/mnt"
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		return fmt.Errorf("mount a BPF file system: %w", err)
	}
	if err := os.Setenv(bpffsVar, bpffs); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Dirs returns the cgroup of this process and its BPF file system, "" outside a
// machine of its own.
func Dirs() (cgroup, bpffs string) { return os.Getenv(cgroupVar), os.Getenv(bpffsVar) }

// Need skips a test that needs root, and says so; where privileged tests are
// required it fails.
func Need(tb testing.TB) {
	tb.Helper()
	if os.Getenv(bpffsVar) != "" {
		return
	}
	if os.Getenv(requireVar) != "" {
		tb.Fatalf("privileged tests are required (%s), but this is not root", requireVar)
	}
	tb.Skip("needs root, for BPF and network namespaces")
}

// Cgroup returns the cgroup of this process, whose sockets can be balanced.
func Cgroup(tb testing.TB) string {
	tb.Helper()
	Need(tb)
	return os.Getenv(cgroupVar)
}

// BPFRoot returns a directory in a BPF file system for one test. What the test
// pins there is out of force when it ends.
func BPFRoot(tb testing.TB) string {
	tb.Helper()
	Need(tb)
	root := filepath.Join(os.Getenv(bpffsVar), filepath.Base(tb.TempDir()))
	tb.Cleanup(func() {
		if err := cleanUp(root); err != nil {
			tb.Errorf("clean up %s: %v", root, err)
		}
	})
	return root
}

// cleanUp removes what agents have pinned below root, and below directories in it: tests with
// several nodes give each its own. The next test may get a directory of the same name, so
// whatever stays would be what its agents find.
func cleanUp(root string) error {
	entries, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil {
		return err
	}
	roots := []string{root}
	for _, e := range entries {
		if i, err := os.Stat(e); err == nil && i.IsDir() { // pins are files
			roots = append(roots, filepath.Dir(e))
		}
	}
	slices.Sort(roots)
	for _, r := range slices.Backward(slices.Compact(roots)) {
		if err := datapath.Cleanup(r); err != nil {
			return err
		}
	}
	if _, err := os.Stat(root); err == nil {
		return errors.New("something is left")
	}
	return nil
}

// AddAddress gives the loopback device an address, which servers of the test
// can listen on, until the test ends.
func AddAddress(tb testing.TB, address string) {
	tb.Helper()
	Need(tb)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		tb.Fatal(err)
	}
	ip := net.ParseIP(address)
	bits := 128
	if ip.To4() != nil {
		ip, bits = ip.To4(), 32
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrReplace(lo, a); err != nil {
		tb.Fatalf("add address %s: %v", address, err)
	}
	awaitLocal(tb, ip)
	tb.Cleanup(func() {
		err := netlink.AddrDel(lo, a)
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // given twice
			tb.Errorf("remove address %s: %v", address, err)
		}
	})
}

// awaitLocal returns when the kernel takes packets for an address. It finishes
// an IPv6 address later, in a work queue: bind() goes already and there is a
// route to the device, but not yet the one that makes the address local.
func awaitLocal(tb testing.TB, ip net.IP) {
	tb.Helper()
	for range 10_000 {
		routes, err := netlink.RouteGet(ip)
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		time.Sleep(time.Millisecond)
	}
	tb.Fatalf("add address %s: packets to it are not taken", ip)
}
