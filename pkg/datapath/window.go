package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// window is a part of an array map as memory of this process. The kernel counts all that is mapped as its
// memory at once, read or not.
type window struct {
	m          *ebpf.Map
	whole      uintptr // bytes of the map
	size       uintptr // of the window, a power of two; 0 for the whole map
	protection int
	from       uintptr // where it begins
	mem        []byte  // nil while nothing is mapped
}

func newWindow(m *ebpf.Map, size uintptr, protection int) window {
	return window{m: m, whole: wholePages(stride(m) * uintptr(m.MaxEntries())), size: size, protection: protection}
}

// shows says whether so many bytes at an offset are in the window.
func (w *window) shows(offset, bytes uintptr) bool {
	return offset >= w.from && offset+bytes <= w.from+uintptr(len(w.mem))
}

// move has the window hold so many bytes at an offset.
func (w *window) move(offset, bytes uintptr) (err error) {
	w.Close()
	size := w.whole
	w.from = 0
	if w.size > 0 {
		w.from = offset &^ (w.size - 1)
		size = min(w.size+wholePages(bytes), w.whole-w.from)
	}
	w.mem, err = unix.Mmap(w.m.FD(), int64(w.from), int(size), w.protection, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map a part of %s into memory: %w", w.m, err)
	}
	return nil
}

// at returns where an offset is, which has to be shown.
func (w *window) at(offset uintptr) unsafe.Pointer { return unsafe.Pointer(&w.mem[offset-w.from]) }

// Close lets go of the window. A nil map has none.
func (w *window) Close() {
	if w != nil && w.mem != nil {
		_ = unix.Munmap(w.mem) // fails only for memory that is not mapped
		w.mem = nil
	}
}
