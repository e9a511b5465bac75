package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/cgroup"
)

// EachNamespace calls do in every network namespace that a process or a mount
// keeps, with its file and cookie, on a thread that is in it.
func EachNamespace(do func(file string, cookie uint64) error) error {
	files, err := namespaceFiles()
	errs := []error{err}
	onLostThread(func() {
		for _, file := range files {
			errs = append(errs, enter(file, do))
		}
	})
	return errors.Join(errs...)
}

// IsBalanced says whether the sockets of a process are in the cgroup of the programs, given the file of its network namespace as
// EachNamespace has it. It is false for a namespace that no process is in.
func (r *Reader) IsBalanced(file string) bool {
	process, is := strings.CutSuffix(file, "/ns/net")
	if !is {
		return false
	}
	within := "0::" + r.PartOfCgroups()
	text, _ := os.ReadFile(process + "/cgroup") // of one that is gone there is none
	return isWithin(string(text), within)
}

// PartOfCgroups returns the cgroup whose sockets are balanced, by its path below the root of cgroup2; "" is the root, so that all
// are. The agent may have named that by the path of a mount that is not here.
func (r *Reader) PartOfCgroups() string {
	id, _ := r.balancedCgroup() // if it is gone, the path tells
	root, _ := cgroup.Root()    // no path begins with ""
	about := r.maps.about.at(0)
	return partOf(id, decodeString(about.Cgroup[:]), root)
}

func partOf(id uint64, path, root string) string {
	if id == rootCgroup {
		return ""
	}
	return strings.TrimPrefix(path, root)
}

// isWithin says whether a process is in a cgroup2 or one below, such as 0::/kubepods, given its /proc/PID/cgroup. Paths that lead
// out of the cgroup namespace of this process do not tell it: they count as within.
func isWithin(text, cgroup string) bool {
	all := strings.ReplaceAll(text, "\n", "/")
	return strings.Contains(all, strings.TrimSuffix(cgroup, "/")+"/") || strings.Contains(all, "0::/..")
}

// InNamespace calls do on a thread that is in the network namespace of a file. Nothing else runs on that thread.
func InNamespace(file string, do func() error) error {
	err := fmt.Errorf("network namespace %s is gone", file)
	onLostThread(func() {
		entered := enter(file, func(string, uint64) error {
			err = do()
			return nil
		})
		if entered != nil {
			err = entered
		}
	})
	return err
}

// places are the files by which network namespaces were found, by cookie: to look through all
// processes takes longer than to look through the sockets of one namespace. A namespace is not
// kept by its place, and a file may have become that of another.
type places map[uint64]string

// visit calls do in the namespaces that are wanted, as EachNamespace does, or in all of them.
func (p *places) visit(wanted map[uint64]bool, all bool, do func() error) error {
	left, errs := maps.Clone(wanted), []error(nil)
	once := func(file string, cookie uint64) error {
		if !all && !left[cookie] {
			return nil
		}
		delete(left, cookie)
		return do()
	}
	if !all {
		onLostThread(func() {
			for cookie := range wanted {
				errs = append(errs, enter((*p)[cookie], once))
			}
		})
	}
	if !all && len(left) == 0 {
		return errors.Join(errs...)
	}
	*p = places{}
	errs = append(errs, EachNamespace(func(file string, cookie uint64) error {
		(*p)[cookie] = file
		return once(file, cookie)
	}))
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
func enter(file string, do func(file string, cookie uint64) error) error {
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
	return do(file, cookie)
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
