package preflight

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is one that is seen from here.
type process struct {
	pid  int
	name string
}

// String names a process as messages do.
func (p process) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.pid) }

// readProcesses returns the processes that are seen from here, by ID.
func readProcesses() (all []process) {
	files, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is good
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	for _, file := range files {
		name, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // as the pattern has it
		all = append(all, process{pid, string(bytes.TrimSpace(name))})
	}
	return all
}

// ownerOf returns the process with an open file, such as socket:[4711], or false where none
// is seen.
func ownerOf(all []process, file string) (process, bool) {
	i := slices.IndexFunc(all, func(p process) bool { return p.hasOpen(file) })
	if i < 0 {
		return process{}, false
	}
	return all[i], true
}

func (p process) hasOpen(file string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	names, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(names, func(name os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(dir, name.Name()))
		return err == nil && to == file
	})
}

// isHere says whether a process is in the network namespace of this thread, as far as that
// can be seen.
func (p process) isHere() bool {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return true
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	return err != nil || its == here
}

// argument returns the value of a flag in the command line of a process, "" for none.
func (p process) argument(flag string) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err != nil {
		return ""
	}
	words := strings.Split(string(line), "\x00")
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
		if word == flag && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// holderOf returns the process that has a BPF program open, or a link of it, or false where
// none is seen.
func holderOf(all []process, program uint32) (process, bool) {
	line := fmt.Sprintf("prog_id:\t%d\n", program)
	i := slices.IndexFunc(all, func(p process) bool {
		dir := fmt.Sprintf("/proc/%d/", p.pid)
		names, err := os.ReadDir(dir + "fd")
		return err == nil && slices.ContainsFunc(names, func(name os.DirEntry) bool {
			to, err := os.Readlink(dir + "fd/" + name.Name())
			if err != nil || !strings.HasPrefix(to, "anon_inode:bpf") {
				return false
			}
			about, err := os.ReadFile(dir + "fdinfo/" + name.Name())
			return err == nil && strings.Contains(string(about), line)
		})
	})
	if i < 0 {
		return process{}, false
	}
	return all[i], true
}
