package datapath

import (
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// takeEntries copies the socket NAT entries of an older map to the new one, unless the
// two are the same. The programs of both may be in force: what a slot of the new one
// has already stays.
func (d *Datapath) takeEntries(from *mapSet) error {
	if from == nil || from.byName["socket_nat"] == nil {
		return nil
	}
	old, now := from.byName["socket_nat"], d.maps.byName["socket_nat"]
	if sameMap(old, now) {
		return nil
	}
	c, err := newConversion(old, d.object.spec.Maps["socket_nat"])
	if err != nil {
		return nil // made by a program whose entries this one cannot read
	}
	slots, err := newMapping[headgateSocketSlot](now, true)
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
		c.takeEntry(slots, mem[i*stride:(i+1)*stride])
	}
	return nil
}

// takeEntry takes along what a slot holds while its socket may be closed.
func (c *conversion) takeEntry(slots *mapping[headgateSocketSlot], slot []byte) {
	p := c.entry(slot)
	if !takeEntry(slots, p) {
		return
	}
	// The socket may have been closed just before its entry arrived.
	if c.entry(slot).Owner != p.Owner {
		dropEntry(slots, p.Owner)
	}
}

// entry reads an element of an older socket_nat map.
func (c *conversion) entry(old []byte) (p headgateSocketSlot) {
	out := unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p))
	for _, m := range c.value {
		copy(out[m.to:m.to+m.size], old[m.from:])
	}
	return p
}

// takeEntry puts an entry where its socket looks for it; false if that is
// taken, or there is no entry.
func takeEntry(slots *mapping[headgateSocketSlot], p headgateSocketSlot) bool {
	at := slots.at(uint32(p.Owner) & (slots.len - 1))
	if p.Owner == 0 || !atomic.CompareAndSwapUint64(&at.Owner, 0, p.Owner) {
		return false
	}
	at.Entry = p.Entry
	return true
}

func dropEntry(slots *mapping[headgateSocketSlot], owner uint64) {
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
