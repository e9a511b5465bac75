package datapath

import (
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// seldom is an array map that is large, and of which little is written and all of it seldom read:
// the names of Service ports, with what is counted of them, are 544 bytes each, 52 MiB for 100,000, and
// backends 192 bytes, 92 MiB for 500,000. It is no memory of this process but while somebody reads it, and a window where it was
// written last. T is the type of its elements.
type seldom[T any] struct {
	window
	len    uint32  // elements
	stride uintptr // bytes from one element to the next
	missed uintptr // where put last wrote elsewhere, in windows; 0 at first, where IDs begin
}

// seldomWindow is how much of such a map is memory of this process at a time.
const seldomWindow = 1 << 16

// newSeldom returns an array map whose values are as large as T.
func newSeldom[T any](m *ebpf.Map) (*seldom[T], error) {
	stride, err := strideOf[T](m)
	if err != nil {
		return nil, err
	}
	return &seldom[T]{window: newWindow(m, seldomWindow, unix.PROT_READ|unix.PROT_WRITE), len: m.MaxEntries(), stride: stride}, nil
}

// all returns all of it as memory, which is to be closed soon.
func (s *seldom[T]) all(writable bool) (*mapping[T], error) { return newMapping[T](s.m, writable) }

// at returns element i, which must be below len, until the next call.
func (s *seldom[T]) at(i uint32) (*T, error) {
	offset := s.offset(i)
	if !s.shows(offset, s.stride) {
		if err := s.move(offset, s.stride); err != nil {
			return nil, err
		}
	}
	return (*T)(s.window.at(offset)), nil
}

// put replaces all of element i, which must be below len. The window moves for the second element in a row
// that is elsewhere at one place: moving it takes as long as ten system calls, and changes of single
// elements come from everywhere.
func (s *seldom[T]) put(i uint32, value T) error {
	offset := s.offset(i)
	if place := offset / seldomWindow; !s.shows(offset, s.stride) && place != s.missed {
		s.missed = place
		return s.m.Update(&i, &value, ebpf.UpdateAny)
	}
	at, err := s.at(i)
	if err == nil {
		*at = value
	}
	return err
}

// offset returns where element i begins.
func (s *seldom[T]) offset(i uint32) uintptr {
	if i >= s.len {
		panicBeyond(i, s.len)
	}
	return uintptr(i) * s.stride
}

// Close lets go of the window. A nil map has none.
func (s *seldom[T]) Close() {
	if s != nil {
		s.window.Close()
	}
}
