package datapath

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapping is an array map as memory of this process: writing it is a store,
// and takes no system call. T is the type of its elements.
type mapping[T any] struct {
	mem    []byte
	stride uintptr // bytes from one element to the next
	len    uint32  // elements
}

// newMapping maps an array map whose values are as large as T.
func newMapping[T any](m *ebpf.Map, writable bool) (*mapping[T], error) {
	if _, err := strideOf[T](m); err != nil {
		return nil, err
	}
	mem, stride, err := mapArray(m, writable)
	if err != nil {
		return nil, err
	}
	return &mapping[T]{mem: mem, stride: stride, len: m.MaxEntries()}, nil
}

// strideOf returns how many bytes it is from one element of an array map to the next. It is an
// error if the values are not as large as T.
func strideOf[T any](m *ebpf.Map) (uintptr, error) {
	var element T
	if m.ValueSize() != uint32(unsafe.Sizeof(element)) {
		return 0, fmt.Errorf("map %s: values of %d bytes, want %d", m, m.ValueSize(), unsafe.Sizeof(element))
	}
	return stride(m), nil
}

// stride returns how many bytes it is from one element of an array map to the next.
func stride(m *ebpf.Map) uintptr { return (uintptr(m.ValueSize()) + 7) &^ 7 }

// mapArray maps an array map, whatever its values are. It returns how many
// bytes it is from one to the next.
func mapArray(m *ebpf.Map, writable bool) (mem []byte, each uintptr, err error) {
	protection := unix.PROT_READ
	if writable {
		protection |= unix.PROT_WRITE
	}
	each = stride(m)
	mem, err = unix.Mmap(m.FD(), 0, int(wholePages(each*uintptr(m.MaxEntries()))), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, 0, fmt.Errorf("map %s into memory: %w", m, err)
	}
	return mem, each, nil
}

// wholePages returns so many bytes, rounded up to pages.
func wholePages(bytes uintptr) uintptr {
	page := uintptr(os.Getpagesize())
	return (bytes + page - 1) &^ (page - 1)
}

// at returns element i, which must be below len: in the kernel's memory, which
// programs read at the same time.
func (m *mapping[T]) at(i uint32) *T {
	if i >= m.len {
		panicBeyond(i, m.len)
	}
	return (*T)(unsafe.Pointer(&m.mem[uintptr(i)*m.stride]))
}

// panicBeyond tells of a bug: Reserve comes first. It stands alone, so that what reads an element is
// inlined.
//
//go:noinline
func panicBeyond(i, n uint32) { panic(fmt.Sprintf("element %d of a map of %d", i, n)) }

// Close ends the mapping. A nil mapping has nothing to end.
func (m *mapping[T]) Close() {
	if m != nil && m.mem != nil {
		_ = unix.Munmap(m.mem) // fails only for memory that is not mapped
		m.mem = nil
	}
}

// storeTable replaces a table that programs may be reading, in one store.
func storeTable(to *headgateTable, t headgateTable) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(to)), *(*uint64)(unsafe.Pointer(&t)))
}

// storeView does the same for a view.
func storeView(to *headgateView, v headgateView) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(to)), *(*uint64)(unsafe.Pointer(&v)))
}
