package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// talk is TCP between the client and the server of a path, both in the thread of
// the client's network namespace: what packets need on the way, they take from
// it.
type talk struct {
	targets   *targets
	listeners map[uint16]int
	client    int // of an open connection
	server    int
	payload   [32]byte
}

// patience is how long a packet may take.
var patience = unix.Timeval{Sec: 10}

// newTalk listens on the server and opens a connection.
func newTalk(p *forwardPath) (*talk, error) {
	first, n, port := p.target()
	t := &talk{targets: newTargets(first, n, port)}
	err := p.topology.Namespace(theServer).Do(func() (err error) {
		t.listeners, err = listenTCP(t.targets.family, backendPort)
		if err != nil {
			return err
		}
		return unix.SetsockoptTimeval(t.listeners[backendPort], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	})
	if err != nil {
		return nil, err
	}
	return t, p.topology.Namespace(theClient).Do(func() (err error) {
		t.client, t.server, err = t.open(0)
		return err
	})
}

// open connects to target i; both ends will close by a reset.
func (t *talk) open(i int) (client, server int, err error) {
	client, err = socket(t.targets.family, unix.SOCK_STREAM)
	if err != nil {
		return 0, 0, err
	}
	if err := unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, 0, fmt.Errorf("set linger: %w", err)
	}
	if err := connect(client, t.targets, i); err != nil {
		return 0, 0, err
	}
	fd, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(t.listeners[backendPort]), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, 0, fmt.Errorf("accept: %w", errno)
	}
	return client, int(fd), nil
}

// pass moves a payload from one end to the other.
func (t *talk) pass(from, to int) error {
	size := unsafe.Sizeof(t.payload)
	for _, c := range []struct {
		trap uintptr
		fd   int
	}{{unix.SYS_WRITE, from}, {unix.SYS_READ, to}} {
		n, _, errno := syscall.RawSyscall(c.trap, uintptr(c.fd), uintptr(unsafe.Pointer(&t.payload)), size)
		if errno != 0 || n != size {
			return fmt.Errorf("%d of %d bytes: %w", n, size, errno)
		}
	}
	return nil
}

func (t *talk) ask(client, server int) error {
	if err := t.pass(client, server); err != nil {
		return err
	}
	return t.pass(server, client)
}

// exchange is a request and its answer on the open connection.
func (t *talk) exchange(int) (int64, error) {
	from := clock()
	err := t.ask(t.client, t.server)
	return clock() - from, err
}

// life is a connection with one request, from socket() to the end.
func (t *talk) life(i int) (int64, error) {
	from := clock()
	client, server, err := t.open(i)
	if err != nil {
		return 0, err
	}
	err = t.ask(client, server)
	closeSocket(client)
	closeSocket(server)
	return clock() - from, err
}

func (t *talk) close() {
	closeSocket(t.client)
	closeSocket(t.server)
	for _, fd := range t.listeners {
		closeSocket(fd)
	}
}
