package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// Support is what a machine lacks of what the datapath needs, nil for nothing. To ask for it
// changes nothing: what is loaded for it is let go again.
type Support struct {
	Release    string // of the kernel
	Cgroup     string // the cgroup2 directory that is meant
	Kernel     error
	Privileges error
	Namespaces error // those of pods cannot be found
	CgroupType error
	FileSystem error // of BPF
	Programs   error // the kernel does not load them
	Substitutes
}

// Substitutes are what the datapath does where the kernel lacks something better, "" where it
// does not have to.
type Substitutes struct {
	Devices  string // how it attaches to devices
	Failures string // how it notes connections that fail
	Sockets  string // how it tells sockets of lost backends
}

// attachedByFilters says how programs are attached to devices without tcx, for people.
const attachedByFilters = "attached to devices by filters (clsact), since the kernel has no tcx (requires >= 6.6)"

// Examine looks at the machine as Open would.
func Examine(cfg Config) Support {
	release, err := kernelRelease()
	cfg.Cgroup = unified(cfg.Cgroup)
	s := Support{
		Release: release, Cgroup: cfg.Cgroup, Kernel: err, Privileges: checkCapabilities(), Namespaces: checkNamespaces(),
		CgroupType: checkCgroup(cfg.Cgroup), FileSystem: checkMountable(cfg.Root),
	}
	if err == nil && olderThan(release, oldestKernel) {
		s.Kernel = tooOld(release)
	}
	if s.Privileges != nil || s.Kernel != nil {
		return s // the kernel would refuse whatever else is asked
	}
	s.Programs = tryPrograms(cfg)
	if errors.Is(s.Programs, fs.ErrPermission) {
		s.Privileges, s.Programs = errors.New("the kernel lets this process load no programs, as in a user namespace of its own"), nil
		return s
	}
	s.Substitutes = substitutes(cfg)
	return s
}

// checkNamespaces returns an error unless the network namespaces of pods can be found.
func checkNamespaces() error {
	can, err := capable(unix.CAP_SYS_PTRACE)
	if err == nil && !can {
		err = errors.New("no CAP_SYS_PTRACE, which finding the network namespaces of pods and connecting UDP sockets again need")
	}
	return err
}

// checkMountable is checkRoot, and is content with a place where Open would mount one.
func checkMountable(root string) error {
	err := checkRoot(root)
	if err == nil || !isBelowMount(root) {
		return err
	}
	mounts, mountErr := mountinfo.GetMounts(mountinfo.ParentsFilter(bpfMount))
	if mountErr == nil && isShared(mounts) && exists(bpfMount) {
		return nil
	}
	return err
}

// tryPrograms loads the programs that nearly every node needs, with maps of the least size.
func tryPrograms(cfg Config) error {
	cfg.SocketEntries, cfg.Affinities, cfg.Flows = 1024, 1, 1024
	if cfg.SNATPorts == (Ports{}) {
		cfg.SNATPorts = DefaultSNATPorts
	}
	o, err := newObject(cfg)
	if err != nil {
		return err
	}
	maps, err := o.makeMaps(plan.Sizes{Frontends: 16, Slots: 16, Backends: 16, Services: 16, Addresses: 16}, nil)
	if err != nil {
		return err
	}
	defer maps.Close()
	programs, err := o.loadPrograms(usualPrograms(o.traced), maps.mapSet, nil)
	if err != nil {
		return err
	}
	programs.Close()
	return nil
}

// usualPrograms are the programs that nearly every node needs.
func usualPrograms(traced bool) []string {
	names := slices.Clone(ranByAgent)
	for _, h := range socketHooks(traced) {
		names = append(names, h.program)
	}
	for _, h := range deviceKinds["device"] {
		names = append(names, h.program)
	}
	return names
}

// substitutes says what the kernel lacks, or the configuration does without.
func substitutes(cfg Config) (s Substitutes) {
	if !cfg.Filters && !hasTCX() {
		s.Devices = attachedByFilters
	}
	if !cfg.SockOps && !mayTrace() {
		s.Failures = notedBySockOps
	}
	if !cfg.Diag && !destroysFromBPF() {
		s.Sockets = toldByDiag
	}
	return s
}

// hasTCX says whether the kernel can say what is attached to a device by tcx.
func hasTCX() bool {
	const loopback = 1
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

func kernelRelease() (string, error) {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return "", fmt.Errorf("read the release of the kernel: %w", err)
	}
	return unix.ByteSliceToString(uname.Release[:]), nil
}

func tooOld(release string) error {
	return fmt.Errorf("kernel %s is too old: %s or newer is needed", release, oldestKernel)
}

// checkCgroup returns an error unless a directory is of a cgroup2 file system.
func checkCgroup(dir string) error {
	if err := checkFileSystem(dir, unix.CGROUP2_SUPER_MAGIC); err != nil {
		return fmt.Errorf("cgroup %s: %w", dir, err)
	}
	return nil
}
