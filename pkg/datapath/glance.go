package datapath

import (
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// glance is an array map that a Reader reads, mostly from its beginning to its end or a few elements: what
// is memory of the process is a window of it. Whoever reads here and there gets the whole map, once
// moving the window would take longer than to map it; to go on in the window that comes next is not to jump.
type glance[T any] struct {
	window
	len    uint32 // elements
	stride uintptr
	jumps  uintptr // of the window
	failed error   // why it cannot be mapped
	none   T       // what is read then
}

const (
	glanceWindow = 1 << 18 // bytes
	glanceJumps  = 32      // beside those of somebody who reads every window of the map, twice
)

// newGlance returns an array map whose values are as large as T.
func newGlance[T any](m *ebpf.Map) *glance[T] {
	stride, err := strideOf[T](m)
	return &glance[T]{window: newWindow(m, glanceWindow, unix.PROT_READ), len: m.MaxEntries(), stride: stride, failed: err}
}

// at returns element i, which must be below len, until the next call: of a map that cannot be mapped one
// that holds nothing.
func (g *glance[T]) at(i uint32) *T {
	if i >= g.len {
		panicBeyond(i, g.len)
	}
	offset := uintptr(i) * g.stride
	if !g.shows(offset, g.stride) {
		g.show(offset)
	}
	if g.failed != nil {
		g.none = *new(T)
		return &g.none
	}
	return (*T)(g.window.at(offset))
}

// rest lets go of what is memory until the next call.
func (g *glance[T]) rest() {
	g.Close()
	g.size, g.jumps = glanceWindow, 0
}

func (g *glance[T]) show(offset uintptr) {
	if g.failed != nil {
		return
	}
	if next := g.from + glanceWindow; offset < next || offset >= next+glanceWindow {
		g.jumps++
	}
	if g.jumps > glanceJumps+2*g.whole/glanceWindow {
		g.size = 0
	}
	g.failed = g.move(offset, g.stride)
}
