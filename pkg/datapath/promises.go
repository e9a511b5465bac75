package datapath

import (
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// takePromises gives the promises that sockets have by an older map to a new
// one, unless the two are the same. The programs of both may be in force: what
// a slot of the new one holds already stays.
func (d *Datapath) takePromises(from *mapSet) error {
	if from == nil || from.byName["promises"] == nil {
		return nil
	}
	old, now := from.byName["promises"], d.maps.byName["promises"]
	if sameMap(old, now) {
		return nil
	}
	c, err := newConversion(old, d.object.spec.Maps["promises"])
	if err != nil {
		return nil // made by a program that kept none this one could read
	}
	slots, err := newMapping[headgatePromiseSlot](now, true)
	if err != nil {
		return err
	}
	defer slots.Close()
	mem, stride, err := mapArray(old, false)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(mem) }() // fails only for memory that is not mapped
	for i := range uintptr(old.MaxEntries()) {
		c.takePromise(slots, mem[i*stride:(i+1)*stride])
	}
	return nil
}

// takePromise takes along what a slot holds while its socket may be closed.
func (c *conversion) takePromise(slots *mapping[headgatePromiseSlot], slot []byte) {
	p := c.promise(slot)
	if !takePromise(slots, p) {
		return
	}
	// The socket may have been closed just before its promise arrived.
	if c.promise(slot).Owner != p.Owner {
		dropPromise(slots, p.Owner)
	}
}

// promise reads an element of an older promises map.
func (c *conversion) promise(old []byte) (p headgatePromiseSlot) {
	out := unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p))
	for _, m := range c.value {
		copy(out[m.to:m.to+m.size], old[m.from:])
	}
	return p
}

// takePromise puts a promise where its socket looks for it; false if that is
// taken, or there is no promise.
func takePromise(slots *mapping[headgatePromiseSlot], p headgatePromiseSlot) bool {
	at := slots.at(uint32(p.Owner) & (slots.len - 1))
	if p.Owner == 0 || !atomic.CompareAndSwapUint64(&at.Owner, 0, p.Owner) {
		return false
	}
	at.Promise = p.Promise
	return true
}

func dropPromise(slots *mapping[headgatePromiseSlot], owner uint64) {
	atomic.CompareAndSwapUint64(&slots.at(uint32(owner)&(slots.len-1)).Owner, owner, 0)
}

// sameMap says whether two file descriptors are of one map.
func sameMap(a, b *ebpf.Map) bool {
	id := func(m *ebpf.Map) (ebpf.MapID, bool) {
		info, err := m.Info()
		if err != nil {
			return 0, false
		}
		return info.ID()
	}
	idA, okA := id(a)
	idB, okB := id(b)
	return okA && okB && idA == idB
}
