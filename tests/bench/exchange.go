package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call of an exchange.
type call string

const (
	sendTo      call = "sendto"
	receiveFrom call = "recvfrom"
)

func (c call) String() string { return string(c) }

// exchange is a client with a server in the same thread, which answers from
// the address that it was asked at.
type exchange struct {
	client, server int
	targets        *targets
	from           [unix.SizeofSockaddrInet6]byte
	control        [128]byte
	payload        [32]byte
	iovec          unix.Iovec
	message        unix.Msghdr
}

// newExchange opens a client in a group, and a server in another one.
func (b *bench) newExchange(servers, clients *group, t *targets) (*exchange, error) {
	e := &exchange{targets: t}
	if err := b.enter(servers); err != nil {
		return nil, err
	}
	var err error
	if e.server, err = b.server(t.family); err != nil {
		return nil, err
	}
	if err := b.enter(clients); err != nil {
		return nil, err
	}
	e.client, err = socket(t.family, unix.SOCK_DGRAM)
	return e, err
}

// server returns the server of a family: one socket has the port, all
// exchanges have duplicates of it.
func (b *bench) server(family int) (int, error) {
	if fd, ok := b.servers[family]; ok {
		return unix.Dup(fd)
	}
	fd, err := bound(family, unix.SOCK_DGRAM, backendPort)
	if err != nil {
		return 0, err
	}
	level, options := unix.IPPROTO_IP, []int{unix.IP_PKTINFO}
	if family == unix.AF_INET6 { // which may not answer from any local address as it is
		level, options = unix.IPPROTO_IPV6, []int{unix.IPV6_RECVPKTINFO, unix.IPV6_FREEBIND}
	}
	for _, option := range options {
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return 0, fmt.Errorf("ask for destination addresses: %w", err)
		}
	}
	b.servers[family] = fd
	return unix.Dup(fd)
}

func (e *exchange) close() {
	closeSocket(e.client)
	closeSocket(e.server)
}

// call returns an exchange of which one call is timed.
func (e *exchange) call(timed call) op {
	return func(i int) (int64, error) {
		from := clock()
		_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(e.client), uintptr(unsafe.Pointer(&e.payload)), unsafe.Sizeof(e.payload),
			0, uintptr(e.targets.at(i)), uintptr(e.targets.size))
		sent := clock() - from
		if errno != 0 {
			return sent, fmt.Errorf("sendto: %w", errno)
		}
		if err := e.answer(); err != nil {
			return sent, err
		}
		size := uint32(len(e.from))
		from = clock()
		_, _, errno = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(e.client), uintptr(unsafe.Pointer(&e.payload)), unsafe.Sizeof(e.payload),
			unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&e.from)), uintptr(unsafe.Pointer(&size)))
		received := clock() - from
		if errno != 0 {
			return received, fmt.Errorf("recvfrom: %w", errno)
		}
		if timed == sendTo {
			return sent, nil
		}
		return received, e.checkSource(i)
	}
}

// answer takes a datagram and sends it back. What came as control message, the
// address that was asked, goes back as the source.
func (e *exchange) answer() error {
	var peer [unix.SizeofSockaddrInet6]byte
	e.iovec = unix.Iovec{Base: &e.payload[0], Len: uint64(len(e.payload))}
	e.message = unix.Msghdr{
		Name: &peer[0], Namelen: uint32(len(peer)), Iov: &e.iovec, Iovlen: 1,
		Control: &e.control[0], Controllen: uint64(len(e.control)),
	}
	for _, trap := range []uintptr{unix.SYS_RECVMSG, unix.SYS_SENDMSG} {
		if _, _, errno := syscall.RawSyscall(trap, uintptr(e.server), uintptr(unsafe.Pointer(&e.message)), unix.MSG_DONTWAIT); errno != 0 {
			return fmt.Errorf("answer: %w", errno)
		}
	}
	return nil
}

// checkSource returns an error unless the answer seems to come from where the
// client sent to: the port is enough, since backends have another.
func (e *exchange) checkSource(i int) error {
	want := (*[4]byte)(e.targets.at(i))
	if [4]byte(e.from[:4]) != *want {
		return fmt.Errorf("the answer comes from %x, the client sent to %x", e.from[:8], want)
	}
	return nil
}
