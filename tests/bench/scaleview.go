package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Where a frontend has its address, port and protocol (struct frontend of bpf/abi).
const frontendAt = 44

// frontendView is the frontends map as memory.
type frontendView struct {
	path   string
	id     ebpf.MapID
	memory []byte
	each   int
	places map[netip.Addr]int
}

// openFrontends maps the frontends map that is pinned below a root.
func openFrontends(root string) (*frontendView, error) {
	v := &frontendView{path: filepath.Join(root, "maps", "frontends")}
	return v, v.renew()
}

// renew maps the map that is in force now, unless it is the same.
func (v *frontendView) renew() error {
	m, err := ebpf.LoadPinnedMap(v.path, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	if id == v.id {
		return nil
	}
	v.close()
	v.id, v.each, v.places = id, int(m.ValueSize()), map[netip.Addr]int{}
	v.memory, err = unix.Mmap(m.FD(), 0, int(m.MaxEntries())*v.each, unix.PROT_READ, unix.MAP_SHARED)
	return err
}

func (v *frontendView) close() {
	if v.memory != nil {
		_ = unix.Munmap(v.memory)
		v.memory = nil
	}
}

// room returns how many frontends the map has room for: at most half of the places are taken.
func (v *frontendView) room() int { return len(v.memory) / v.each / 2 }

// scan calls a function with each frontend of a Service port over TCP: the place of it in memory,
// and its address.
func (v *frontendView) scan(f func(offset int, addr netip.Addr)) {
	for offset := 0; offset < len(v.memory); offset += v.each {
		at := v.memory[offset+frontendAt:]
		if at[18] == uint8(lb.TCP) && binary.BigEndian.Uint16(at[16:]) == servicePort {
			f(offset, netip.AddrFrom16([16]byte(at[:16])).Unmap())
		}
	}
}

// find looks at all of some frontends, which have to be there.
func (v *frontendView) find(all []*follower) error {
	for _, f := range all {
		if f.word = v.word(f.addr); f.word == 0 {
			return fmt.Errorf("%s is no frontend", f.addr)
		}
	}
	return nil
}

// word returns the view that internal clients of a frontend get, 0 if it is not there.
func (v *frontendView) word(addr netip.Addr) uint64 {
	if len(v.places) == 0 {
		v.scan(func(offset int, addr netip.Addr) { v.places[addr] = offset })
	}
	offset, ok := v.places[addr]
	if !ok {
		return 0
	}
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&v.memory[offset])))
}

// size returns how many backends the table of internal clients has.
func (v *frontendView) size(offset int) uint32 {
	return binary.LittleEndian.Uint32(v.memory[offset+4:]) & (1<<24 - 1)
}
