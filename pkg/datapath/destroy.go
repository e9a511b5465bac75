package datapath

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
)

// ErrNoDestroy says that the kernel cannot destroy sockets of others.
var ErrNoDestroy = fmt.Errorf("this kernel cannot destroy sockets (requires >= 6.5, or CONFIG_INET_DIAG_DESTROY), clients of a deleted backend learn of it by their own time-outs: %w", errors.ErrUnsupported)

// How the sockets of lost backends are told of it, for people.
const (
	toldByBPF  = "told of lost backends by BPF"
	toldByDiag = "told of lost backends through INET_DIAG, since the kernel cannot destroy sockets from BPF (requires >= 6.5)"
	notTold    = "not told of lost backends: the kernel cannot destroy sockets (requires >= 6.5, or CONFIG_INET_DIAG_DESTROY)"
)

// DestroySockets destroys the sockets with an entry for one of the lost backends: what
// they wait for fails with ECONNABORTED, and a datagram socket is no longer connected.
// It looks at every network namespace in which there may be one. It returns
// ErrNoDestroy where the kernel cannot.
func (d *Datapath) DestroySockets(losses []plan.Loss) error {
	namespaces, all, err := d.namespacesOf(losses)
	if err != nil || len(namespaces) == 0 && !all {
		return err
	}
	named := d.cfg.Diag || !destroysFromBPF()
	through, err := d.newIterators(destroyers, map[string]any{"name_sockets": named})
	if err != nil {
		return err
	}
	defer through.Close()
	do := drained
	if named {
		do = destroyNamed
	}
	err = EachNamespace(func(cookie uint64) error {
		if !all && !namespaces[cookie] {
			return nil
		}
		return runIterators(through, do)
	})
	d.reportSockets(named, err)
	return err
}

// reportSockets reports how sockets are destroyed, where that is news.
func (d *Datapath) reportSockets(named bool, err error) {
	how := toldByBPF
	switch {
	case errors.Is(err, ErrNoDestroy):
		how = notTold
	case named:
		how = toldByDiag
	}
	if d.reported != how && d.cfg.ReportSockets != nil {
		d.cfg.ReportSockets(how)
	}
	d.reported = how
}

// destroysFromBPF says whether the kernel lets BPF destroy sockets.
func destroysFromBPF() bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var destroy *btf.Func
	return kernel.TypeByName("bpf_sock_destroy", &destroy) == nil
}

// namespacesOf returns the cookies of the network namespaces with sockets that have an
// entry for a lost backend, or that any may have some.
func (d *Datapath) namespacesOf(losses []plan.Loss) (namespaces map[uint64]bool, all bool, err error) {
	lost := map[headgateAddrPort]bool{}
	for _, l := range losses {
		lost[encodeAddrPort(l.Backend)] = true
	}
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false)
	if err != nil {
		return nil, false, err
	}
	defer slots.Close()
	namespaces = map[uint64]bool{}
	for i := range slots.len {
		if s := slots.at(i); s.Owner != 0 && lost[s.Entry.backend()] {
			namespaces[s.Entry.Netns] = true
		}
	}
	stored, err := d.storedEntries()
	return namespaces, stored > 0, err
}

// storedEntries is how many entries were ever kept in socket storage, which
// cannot be looked through from here.
func (d *Datapath) storedEntries() (uint64, error) {
	sum, err := d.maps.counters()
	return sum.SocketEntryStored, err
}

// destroyers are the programs that destroy sockets, or name them.
var destroyers = map[string]string{"destroy_tcp": "", "destroy_udp": ""}

// drained reads what an iterator says, which is nothing where it destroys
// sockets itself.
func drained(output io.Reader) error {
	if _, err := io.Copy(io.Discard, output); err != nil {
		return fmt.Errorf("go through the sockets: %w", err)
	}
	return nil
}

// runIterators goes through the sockets of the thread's network namespace, and
// does something with what is said of them.
func runIterators(through iterators, do func(io.Reader) error) error {
	for _, it := range through {
		r, err := it.Open()
		if err != nil {
			return fmt.Errorf("open a socket iterator: %w", err)
		}
		err = do(r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// EachNamespace calls do in every network namespace that a process or a mount
// keeps, with its cookie, on a thread that is in it.
func EachNamespace(do func(cookie uint64) error) error {
	files, err := namespaceFiles()
	errs := []error{err}
	onLostThread(func() {
		for _, file := range files {
			errs = append(errs, enter(file, do))
		}
	})
	return errors.Join(errs...)
}

// onLostThread calls f on a thread that ends with it, so that f may leave it in
// another namespace. It is never the main thread: that one cannot end, and the
// files of this process below /proc are its.
func onLostThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onLostThread(f) // on another thread, as long as this one is locked
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// enter moves the thread into a network namespace and calls do. A namespace
// that is gone by now is no error.
func enter(file string, do func(cookie uint64) error) error {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	if errors.Is(err, unix.EINVAL) {
		return nil // no namespace: a mount point whose mount is not there, or not seen from here
	}
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", file, err)
	}
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	return do(cookie)
}

// namespaceFiles returns one file for every network namespace that can be
// found: those of processes, and those that ip netns and container runtimes
// mount. Beside an error there are those that were found.
func namespaceFiles() ([]string, error) {
	seen := map[uint64]bool{}
	var out []string
	hidden := 0
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/run/netns/*", "/var/run/docker/netns/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			var s unix.Stat_t
			err := unix.Stat(file, &s)
			if errors.Is(err, unix.EACCES) {
				hidden++
			}
			if err != nil || seen[s.Ino] {
				continue
			}
			seen[s.Ino] = true
			out = append(out, file)
		}
	}
	if can, err := capable(unix.CAP_SYS_PTRACE); err != nil || can || hidden == 0 {
		return out, err
	}
	return out, fmt.Errorf("the network namespaces of %d processes cannot be seen without CAP_SYS_PTRACE", hidden)
}
