package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Untranslated is a socket that talks to a frontend as if that were a server: no program has
// told it a backend, so that others, such as the rules of kube-proxy, translate each packet.
// It began before the programs were in force. A TCP connection is carried on by the kernel's
// connection tracking until it ends; a datagram socket asks no program again, and once
// nobody keeps these rules nobody moves it to another backend.
type Untranslated struct {
	Protocol string         `json:"protocol"` // TCP or UDP
	Local    netip.AddrPort `json:"local"`
	Frontend netip.AddrPort `json:"frontend"` // as the socket has it, also of a NodePort
	Netns    uint64         `json:"netns"`    // cookie of its network namespace
	named    headgateNamedSocket
}

// Untranslated returns the untranslated sockets of the node: those in every network namespace
// whose process was in the cgroup that is balanced. Sockets that are left alone on purpose
// are none.
func (r *Reader) Untranslated() (all []Untranslated, err error) {
	err = r.visitUntranslated([]lb.Protocol{lb.TCP, lb.UDP}, func(_ *diag, found []Untranslated) error {
		all = append(all, found...)
		return nil
	})
	return all, err
}

// TellUntranslated destroys the untranslated datagram sockets: what they wait for fails with
// ECONNABORTED, they are no longer connected, and one that its program makes anew has a
// backend. It returns how many it has told, and ErrNoDestroy where the kernel cannot.
func (r *Reader) TellUntranslated() (told int, err error) {
	err = r.visitUntranslated([]lb.Protocol{lb.UDP}, func(d *diag, found []Untranslated) error {
		for _, s := range found {
			if err := d.destroy(&s.named); err != nil {
				return err
			}
			told++
		}
		return nil
	})
	return told, err
}

// visitUntranslated calls do with the untranslated sockets of each network namespace, on a
// thread that is in it.
func (r *Reader) visitUntranslated(protocols []lb.Protocol, do func(*diag, []Untranslated) error) error {
	is, err := r.frontendsAsPeers()
	if err != nil {
		return err
	}
	within, err := r.balancedCgroups()
	if err != nil {
		return err
	}
	here, err := netnsCookie()
	if err != nil {
		return err
	}
	return EachNamespace(func(_ string, netns uint64) error {
		if r.isExempt(netns) {
			return nil
		}
		d, err := openDiag()
		if err != nil {
			return err
		}
		defer d.close()
		var found []Untranslated
		for _, protocol := range protocols {
			sockets, err := d.connected(uint8(protocol))
			if err != nil {
				return err
			}
			for _, s := range sockets {
				to := s.peer()
				if (within == nil || within[s.cgroup]) && is(lb.AddrPort{Addr: to.Addr(), Port: to.Port(), Protocol: protocol}, netns == here) {
					found = append(found, Untranslated{Protocol: protocol.String(), Local: s.local(), Frontend: to, Netns: netns, named: s.headgateNamedSocket})
				}
			}
		}
		return do(d, found)
	})
}

// frontendsAsPeers returns what says whether the peer of a socket, in the node's network
// namespace or a pod's, is a frontend and nothing else. Where a backend has the address of a frontend, a socket that was told so looks no different.
func (r *Reader) frontendsAsPeers() (func(peer lb.AddrPort, ofNode bool) bool, error) {
	content, err := r.Content()
	if err != nil {
		return nil, err
	}
	backends := map[lb.AddrPort]bool{}
	for _, b := range content.Backends {
		backends[b] = true
	}
	return func(peer lb.AddrPort, ofNode bool) bool {
		return !backends[peer] && content.IsFrontend(peer, ofNode)
	}, nil
}

func (r *Reader) isExempt(netns uint64) bool {
	m := r.maps.byName["exempt_namespaces"]
	var none uint32
	return m != nil && m.Lookup(&netns, &none) == nil
}

// rootCgroup is the ID of the root of cgroup2, wherever that is mounted.
const rootCgroup = 1

// balancedCgroup returns the ID of the cgroup that programs are attached to.
func (r *Reader) balancedCgroup() (uint64, error) {
	info, err := r.link(makers[0].program)
	if err != nil {
		return 0, fmt.Errorf("look for the cgroup of the programs: %w", err)
	}
	if info.Cgroup() == nil || info.Cgroup().CgroupId == 0 {
		return 0, errors.New("the cgroup of the programs is gone, no socket is balanced: start the agent with another --cgroup")
	}
	return info.Cgroup().CgroupId, nil
}

// balancedCgroups returns the IDs of the cgroup that programs are attached to and of those
// below it; nil, for all, where it is the root. The agent may have named it by a path that is
// none outside of its container, so that the programs say which it is.
func (r *Reader) balancedCgroups() (map[uint64]bool, error) {
	id, err := r.balancedCgroup()
	if err != nil || id == rootCgroup {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("find cgroup2: %w", err)
	}
	places := []string{decodeString(r.maps.about.at(0).Cgroup[:])}
	for _, m := range mounts {
		places = append(places, m.Mountpoint)
	}
	return cgroupsBelow(places, id)
}

// cgroupsBelow returns the IDs of a cgroup and of those below it. It is looked for in
// directories, those first that are likely to be it.
func cgroupsBelow(places []string, id uint64) (map[uint64]bool, error) {
	for _, place := range places {
		dir, err := findCgroup(place, id)
		if err != nil {
			return nil, err
		}
		if dir == "" {
			continue
		}
		ids := map[uint64]bool{}
		err = eachCgroup(dir, func(_ string, one uint64) error {
			ids[one] = true
			return nil
		})
		return ids, err
	}
	return nil, fmt.Errorf("cgroup %d, whose sockets are balanced, is not below %s: run it where the node's cgroup2 file system is seen, such as in the pod of the agent", id, strings.Join(places, ", "))
}

// findCgroup returns the directory of the cgroup with an ID at a path or below, "" for none.
func findCgroup(path string, id uint64) (found string, err error) {
	err = eachCgroup(path, func(dir string, one uint64) error {
		if one != id {
			return nil
		}
		found = dir
		return fs.SkipAll
	})
	return found, err
}

// eachCgroup calls do with the cgroup at a path and those below it, and their IDs. It may be a
// symbolic link; those that are gone are left out.
func eachCgroup(path string, do func(dir string, id uint64) error) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	err := filepath.WalkDir(path, func(dir string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.IsDir() {
			return err
		}
		id, err := existingCgroup(dir)
		if err != nil || id == 0 {
			return err
		}
		return do(dir, id)
	})
	if err != nil {
		return fmt.Errorf("look for cgroups: %w", err)
	}
	return nil
}

// existingCgroup returns the ID of a cgroup, 0 for one that was removed meanwhile.
func existingCgroup(dir string) (uint64, error) {
	var s unix.Stat_t
	err := unix.Stat(dir, &s)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return s.Ino, nil
}
