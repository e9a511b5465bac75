// Package netio is what the load generator and its servers need of the kernel
// and package unix does not have: waiting for sockets with nanoseconds, many
// datagrams in a system call, sockets without Go's poller between.
package netio

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Token comes back with the events of a file descriptor. The generation tells
// a descriptor from one that had its number before.
type Token struct {
	Slot       int32
	Generation int32
}

// Poller waits for events of file descriptors. One goroutine may wait at a
// time.
type Poller struct {
	fd     int
	events [256]unix.EpollEvent
}

// NewPoller returns a poller that knows no descriptor.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Close closes the poller, not the descriptors.
func (p *Poller) Close() error { return unix.Close(p.fd) }

// Add asks for events of fd, until it is closed.
func (p *Poller) Add(fd int, events uint32, token Token) error {
	e := unix.EpollEvent{Events: events, Fd: token.Slot, Pad: token.Generation}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// Again has the poller look at fd anew: what is ready already is an event.
func (p *Poller) Again(fd int, events uint32, token Token) error {
	e := unix.EpollEvent{Events: events, Fd: token.Slot, Pad: token.Generation}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &e); err != nil {
		return fmt.Errorf("change in epoll: %w", err)
	}
	return nil
}

// Event is what happened to a descriptor.
type Event struct{ e unix.EpollEvent }

// Token returns what Add was given.
func (e Event) Token() Token { return Token{e.e.Fd, e.e.Pad} }

// Lost says that the peer is gone, or something is wrong with the socket.
func (e Event) Lost() bool { return e.e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 }

// Wait calls handle for each event. It returns at once if there are some, and
// after limit at the latest. Interruptions are no error.
func (p *Poller) Wait(limit time.Duration, handle func(Event)) error {
	timeout := unix.NsecToTimespec(max(limit, 0).Nanoseconds())
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		if errors.Is(errno, unix.EINTR) {
			return nil
		}
		return fmt.Errorf("wait for events: %w", errno)
	}
	for _, e := range p.events[:n] {
		handle(Event{e})
	}
	return nil
}
