package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// leaks returns what the tests have left behind: open or pinned BPF objects,
// objects in the kernel, threads in other network namespaces. The kernel frees
// most things a little later than they are let go of.
func leaks() []string {
	var left []string
	known := constants{}
	for range 100 {
		left = slices.Concat(pins(), descriptors(), strayThreads(), linksLeft(), programsLeft(known), mapsLeft())
		if len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return left
}

func pins() (left []string) {
	entries, err := os.ReadDir(os.Getenv(bpffsVar))
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".debug") { // the kernel's own, no name that we could take
			left = append(left, "pinned: "+e.Name())
		}
	}
	return left
}

// descriptors returns the BPF objects that this process has open.
func descriptors() (left []string) {
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range files {
		kind, _ := os.Readlink(f) // gone again: that of the directory itself
		if strings.HasPrefix(kind, "anon_inode:bpf-") || kind == "anon_inode:bpf_link" {
			left = append(left, "open: "+kind)
		}
	}
	return left
}

// strayThreads returns threads that are in another network namespace than the
// first.
func strayThreads() (left []string) {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return []string{err.Error()}
	}
	threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, t := range threads {
		if ns, err := os.Readlink(t); err == nil && ns != home {
			left = append(left, "network namespace: "+t+" is in "+ns)
		}
	}
	return left
}

// linksLeft returns the links that are attached to the cgroup of the tests.
func linksLeft() (left []string) {
	var s unix.Stat_t
	if err := unix.Stat(os.Getenv(cgroupVar), &s); err != nil {
		return []string{err.Error()}
	}
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil || info.Cgroup() == nil || info.Cgroup().CgroupId != s.Ino {
			continue
		}
		left = append(left, fmt.Sprintf("attached: link %d of type %s", info.ID, info.Cgroup().AttachType))
	}
	return append(left, text(links.Err())...)
}

// programsLeft returns the programs that were loaded for the network namespace
// of the tests, by the constant that says so.
func programsLeft(known constants) (left []string) {
	cookie, err := netnsCookie()
	if err != nil {
		return []string{err.Error()}
	}
	var id ebpf.ProgramID
	for {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			return append(left, text(err)...)
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := p.Info(); err == nil && known.of(info, cookie) {
			left = append(left, fmt.Sprintf("loaded: program %d, %s", id, info.Name))
		}
		p.Close()
	}
}

func netnsCookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	return unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// constants says of maps whether they have the constants of programs for the network namespace of the tests. That
// stays as it is, and on a busy machine there are many of others.
type constants map[ebpf.MapID]bool

// of says whether a program is for the network namespace with a cookie.
func (c constants) of(p *ebpf.ProgramInfo, cookie uint64) bool {
	ids, _ := p.MapIDs()
	return slices.ContainsFunc(ids, func(id ebpf.MapID) bool {
		ours, known := c[id]
		if !known {
			ours = name(id, cookie)
			c[id] = ours
		}
		return ours
	})
}

// name says whether constants name the network namespace with a cookie.
func name(id ebpf.MapID, cookie uint64) bool {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return false
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || !info.Frozen() {
		return false
	}
	value, err := m.LookupBytes(uint32(0))
	at, found := offsetOf(m, "node_netns_cookie")
	return err == nil && found && len(value) >= at+8 && binary.NativeEndian.Uint64(value[at:]) == cookie
}

// offsetOf returns where a constant stands in the value of a map with constants. To look for its bytes is not
// enough: a small number is among those of others, too.
func offsetOf(m *ebpf.Map, name string) (int, bool) {
	types, err := m.Handle()
	if err != nil {
		return 0, false
	}
	defer types.Close()
	spec, err := types.Spec(nil)
	var all *btf.Datasec
	if err != nil || spec.TypeByName(".rodata", &all) != nil {
		return 0, false
	}
	i := slices.IndexFunc(all.Vars, func(v btf.VarSecinfo) bool { return v.Type.TypeName() == name })
	if i < 0 {
		return 0, false
	}
	return int(all.Vars[i].Offset), true
}

// mapsLeft returns the maps that say they are of the cgroup of the tests.
func mapsLeft() (left []string) {
	var id ebpf.MapID
	for {
		var err error
		if id, err = ebpf.MapGetNextID(id); err != nil {
			return append(left, text(err)...)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		info, err := m.Info()
		if err == nil && info.Name == "about" && holds(m, []byte(os.Getenv(cgroupVar))) {
			left = append(left, fmt.Sprintf("in memory: map %d, %s", id, info.Name))
		}
		m.Close()
	}
}

// holds says whether the only element of an array has some bytes in it.
func holds(m *ebpf.Map, wanted []byte) bool {
	value, err := m.LookupBytes(uint32(0))
	return err == nil && bytes.Contains(value, wanted)
}

// text is an error as a list, without the one that ends a list.
func text(err error) []string {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return []string{err.Error()}
}
