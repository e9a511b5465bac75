package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockets here are raw system calls on a thread of their own: nothing of Go's
// runtime stands between the clock and the kernel.

// epoch makes reading the clock cheap: only the monotonic one is read.
var epoch = time.Now()

func clock() int64 { return int64(time.Since(epoch)) }

// targets are socket addresses one behind the other, as the kernel takes them.
type targets struct {
	raw    []byte
	size   int // of one, in bytes
	len    int
	family int
}

// newTargets returns n addresses from the first of a network on, in random
// order.
func newTargets(first netip.Addr, n int, port uint16) *targets {
	t := &targets{size: unix.SizeofSockaddrInet4, len: n, family: unix.AF_INET}
	if first.Is6() {
		t.size, t.family = unix.SizeofSockaddrInet6, unix.AF_INET6
	}
	t.raw = make([]byte, t.size*n)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		a, b := nth(first, k+1), t.raw[i*t.size:]
		binary.NativeEndian.PutUint16(b, uint16(t.family))
		binary.BigEndian.PutUint16(b[2:], port)
		if a.Is4() {
			copy(b[4:], a.AsSlice())
		} else {
			copy(b[8:], a.AsSlice())
		}
	}
	return t
}

// at returns address i, of as many as one likes: they come round again.
func (t *targets) at(i int) unsafe.Pointer { return unsafe.Pointer(&t.raw[i%t.len*t.size]) }

func socket(family, kind int) (int, error) {
	fd, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), uintptr(kind|unix.SOCK_CLOEXEC), 0)
	if errno != 0 {
		return 0, fmt.Errorf("socket: %w", errno)
	}
	return int(fd), nil
}

func closeSocket(fd int) { _, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func connect(fd int, t *targets, i int) error {
	_, _, errno := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(t.at(i)), uintptr(t.size))
	if errno != 0 {
		return fmt.Errorf("connect: %w", errno)
	}
	return nil
}

// An op is one call of what is measured: it returns how long the part that is
// timed took, in nanoseconds. i counts the calls of a case.
type op func(i int) (int64, error)

// reconnect connects one UDP socket again and again. It sends nothing: the
// kernel looks for a route and writes down the peer, the hook is the rest.
func reconnect(fd int, t *targets) op {
	return func(i int) (int64, error) {
		from := clock()
		err := connect(fd, t, i)
		return clock() - from, err
	}
}

// The parts of a UDP socket's life.
type part int

const (
	wholeLife part = iota
	firstConnect
	lastClose
)

// life makes a UDP socket, connects and closes it, and times a part of that.
func life(t *targets, timed part) op {
	return func(i int) (int64, error) {
		from := clock()
		fd, err := socket(t.family, unix.SOCK_DGRAM)
		if err != nil {
			return 0, err
		}
		made := clock()
		err = connect(fd, t, i)
		connected := clock()
		closeSocket(fd)
		to := clock()
		switch timed {
		case firstConnect:
			return connected - made, err
		case lastClose:
			return to - connected, err
		default:
			return to - from - 2*clockCost, err
		}
	}
}

// connectTCP opens a TCP connection to a server in the same thread, which takes
// it from the queue before the next one comes. Only connect() is timed. Both
// ends close by a reset, so that no port waits.
func connectTCP(t *targets, listeners map[uint16]int, port uint16) op {
	abort := unix.Linger{Onoff: 1}
	return func(i int) (int64, error) {
		fd, err := socket(t.family, unix.SOCK_STREAM)
		if err != nil {
			return 0, err
		}
		_, _, errno := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
			uintptr(unsafe.Pointer(&abort)), unsafe.Sizeof(abort), 0)
		if errno != 0 {
			return 0, fmt.Errorf("set linger: %w", errno)
		}
		from := clock()
		err = connect(fd, t, i)
		took := clock() - from
		if err != nil {
			return took, err
		}
		peer, err := accept(listeners[port])
		if err != nil {
			return took, err
		}
		closeSocket(fd)
		closeSocket(peer)
		return took, nil
	}
}

// lifeTCP opens a TCP connection as connectTCP does, closes it, the client first, and
// times all of that: the part of the server is the same for every program.
func lifeTCP(t *targets, listeners map[uint16]int, port uint16) op {
	return func(i int) (int64, error) {
		from := clock()
		fd, err := socket(t.family, unix.SOCK_STREAM)
		if err != nil {
			return 0, err
		}
		if err := connect(fd, t, i); err != nil {
			return 0, err
		}
		peer, err := accept(listeners[port])
		if err != nil {
			return 0, err
		}
		closeSocket(fd)
		closeSocket(peer)
		return clock() - from, nil
	}
}

func accept(listener int) (int, error) {
	peer, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("accept: %w", errno)
	}
	return int(peer), nil
}

// listenTCP opens a socket for each port that TCP connections of a family may
// come to.
func listenTCP(family int, ports ...uint16) (map[uint16]int, error) {
	out := map[uint16]int{}
	for _, port := range ports {
		fd, err := bound(family, unix.SOCK_STREAM, port)
		if err != nil {
			return out, err
		}
		if err := unix.Listen(fd, 128); err != nil {
			return out, fmt.Errorf("listen on port %d: %w", port, err)
		}
		out[port] = fd
	}
	return out, nil
}

// bound returns a socket bound to a port of any address of a family.
func bound(family, kind int, port uint16) (int, error) {
	fd, err := socket(family, kind)
	if err != nil {
		return 0, err
	}
	var any unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family == unix.AF_INET6 {
		any = &unix.SockaddrInet6{Port: int(port)}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return 0, fmt.Errorf("set IPV6_V6ONLY: %w", err)
		}
	}
	if err := unix.Bind(fd, any); err != nil {
		return 0, fmt.Errorf("bind to port %d: %w", port, err)
	}
	return fd, nil
}

// clockCost is what reading the clock adds to what is timed, in nanoseconds.
var clockCost = measureClock()

func measureClock() int64 {
	samples := make([]int64, 100_000)
	for i := range samples {
		from := clock()
		samples[i] = clock() - from
	}
	slices.Sort(samples)
	return int64(mean(samples[len(samples)/4 : len(samples)*3/4]))
}
