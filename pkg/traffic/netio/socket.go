package netio

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted. The kernel has a
// limit of its own below it, net.core.somaxconn.
const backlog = 4096

// ListenTCP returns a socket that does not block and accepts connections.
func ListenTCP(addr netip.AddrPort) (int, error) {
	fd, err := bound(addr, unix.SOCK_STREAM)
	if err == nil {
		if err = unix.Listen(fd, backlog); err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	if err != nil {
		return -1, fmt.Errorf("listen on %s, TCP: %w", addr, err)
	}
	return fd, nil
}

// udpBuffer is what is asked for as room for datagrams that wait to be read. As
// root the kernel gives it, else up to net.core.rmem_max.
const udpBuffer = 4 << 20

// ListenUDP returns a socket that does not block and receives datagrams.
func ListenUDP(addr netip.AddrPort) (int, error) {
	fd, err := bound(addr, unix.SOCK_DGRAM)
	if err != nil {
		return -1, fmt.Errorf("listen on %s, UDP: %w", addr, err)
	}
	// Less room loses datagrams, and that is counted.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, udpBuffer)
	}
	return fd, nil
}

func bound(addr netip.AddrPort, kind int) (int, error) {
	fd, err := unix.Socket(Family(addr.Addr()), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM { // of UDP, two sockets could have the port then
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, Sockaddr(addr))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Close closes a descriptor; a negative one is none.
func Close(fd int) error {
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}
