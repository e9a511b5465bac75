package traffic

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps namespaces by name. Ours are there too,
// so that a person can look inside with the usual tools.
const netnsDir = "/run/netns"

// Namespace is a network namespace with a name below /run/netns and a thread
// that lives in it.
type Namespace struct {
	name string
	work chan func()
	done chan struct{}
}

// NewNamespace makes a network namespace. The name must be free. Close removes
// it.
func NewNamespace(name string) (*Namespace, error) {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %s", netnsDir, err)
	}
	ns := &Namespace{name: name, work: make(chan func()), done: make(chan struct{})}
	made := make(chan error)
	onOwnThread(func() {
		defer close(ns.done)
		err := unshareTo(ns.Path())
		made <- err
		if err != nil {
			return
		}
		for f := range ns.work {
			f()
		}
	})
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make network namespace %s: %s", name, err)
	}
	return ns, nil
}

// Name returns the name that ip-netns(8) knows the namespace by.
func (ns *Namespace) Name() string { return ns.name }

// Path returns the file that stands for the namespace.
func (ns *Namespace) Path() string { return filepath.Join(netnsDir, ns.name) }

// Do runs f on the thread of the namespace. Sockets made by f belong to the
// namespace for all their life, whoever uses them. One f runs at a time, so it
// must be short and must not call Do. An f that ends its goroutine, as a test does
// that fails, ends the thread: that is an error then, and each time after it.
func (ns *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case ns.work <- func() { result <- f() }:
	case <-ns.done:
		return fmt.Errorf("the thread of namespace %s has ended", ns.name)
	}
	select {
	case err := <-result:
		return err
	case <-ns.done:
		return fmt.Errorf("the thread of namespace %s has ended at work", ns.name)
	}
}

// Start starts cmd inside the namespace. The kernel kills the process when the
// namespace is closed or when this process dies, so that nothing is left
// behind even by kill -9. The process has a group of its own: a Ctrl-C at the
// terminal reaches only its parent, which decides the order of the ends.
func (ns *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	// The signal is tied to the thread that forks, which is why every
	// namespace keeps one thread until Close.
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	cmd.SysProcAttr.Setpgid = true
	return ns.Do(cmd.Start)
}

// Close ends the thread, kills what Start started and removes the name. The
// kernel frees the namespace when the last socket in it is closed.
func (ns *Namespace) Close() error {
	close(ns.work)
	<-ns.done
	return removeNamespace(ns.Path())
}

// unshareTo moves the calling thread to a new network namespace and gives it
// the name path.
func unshareTo(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	if err := unix.Mount(self, path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s: %s", path, err), os.Remove(path))
	}
	return nil
}

// removeNamespace takes away the name of a namespace. A file that is no mount
// is what a process leaves that was killed half-way: it goes too.
func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %s", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove network namespace: %s", err)
	}
	return nil
}

// onOwnThread runs f on a thread that nothing else uses and that ends with f,
// so whatever f does to the thread cannot reach other goroutines. The main
// thread is never used: it cannot end, and /proc/self speaks of it.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, except on the main thread
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		other := make(chan struct{})
		onOwnThread(func() { close(other); f() })
		<-other // this holds the main thread until the other one has started
		runtime.UnlockOSThread()
	}()
}
