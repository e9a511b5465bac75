package traffic

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RunName returns a name for what this process makes, under which RemoveStale
// finds it after the process was killed.
func RunName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, os.Getpid()) }

// RemoveStale removes what processes left behind that were killed: namespaces,
// cgroups below cgroupParent, and directories below runDir (a BPF file system
// mounted on their subdirectory "bpf" is unmounted first), each named RunName
// of the prefix, perhaps with more behind a dash. What belongs to a living
// process stays. It returns what it removed.
func RemoveStale(prefix, cgroupParent, runDir string) ([]string, error) {
	kinds := []struct {
		dir    string
		remove func(path string) error
	}{
		{netnsDir, removeNamespace},
		{cgroupParent, removeCgroup},
		{runDir, RemoveRunDir},
	}
	var removed []string
	var errs []error
	for _, kind := range kinds {
		paths, err := filepath.Glob(filepath.Join(kind.dir, prefix+"-*"))
		errs = append(errs, err)
		for _, path := range paths {
			if !isStale(filepath.Base(path), prefix) {
				continue
			}
			errs = append(errs, kind.remove(path))
			removed = append(removed, path)
		}
	}
	return removed, errors.Join(errs...)
}

// RemoveRunDir removes a directory and the file system that may be mounted on
// its subdirectory "bpf".
func RemoveRunDir(dir string) error {
	if err := Unmount(filepath.Join(dir, "bpf")); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// isStale says whether name is one that RunName made in a process that is
// gone. A name of our own process is stale too: the process ID was used again,
// and RemoveStale is called before anything is made.
func isStale(name, prefix string) bool {
	rest, found := strings.CutPrefix(name, prefix+"-")
	if !found {
		return false
	}
	number, _, _ := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return false
	}
	return pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
