package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a blocking socket without Go's poller between us and the kernel,
// so that what is timed is the kernel. Every step has a timeout.
type socket struct {
	fd     int
	target netip.AddrPort
}

var errTimeout = errors.New("no answer in time")

func openSocket(target netip.AddrPort, kind int, timeout time.Duration) (socket, error) {
	family := unix.AF_INET6
	if target.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{}, fmt.Errorf("socket: %w", err)
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return socket{}, errors.Join(fmt.Errorf("set timeout: %w", err), unix.Close(fd))
		}
	}
	return socket{fd: fd, target: target}, nil
}

func (s socket) close() { _ = unix.Close(s.fd) }

// reset makes close() drop the connection at once, with nothing left waiting.
func (s socket) reset() {
	_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

func (s socket) connect() error {
	err := unix.Connect(s.fd, toSockaddr(s.target))
	if errors.Is(err, unix.EINTR) {
		// The kernel goes on connecting. Connecting again would go through
		// the load balancer a second time, so wait instead.
		err = s.awaitConnect()
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINPROGRESS) {
		err = errTimeout
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

func (s socket) awaitConnect() error {
	ready := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(ready, int(time.Second/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errTimeout
		}
		code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// checkPeer says whether getpeername() gives what the application asked for.
func (s socket) checkPeer() error {
	peer, err := unix.Getpeername(s.fd)
	if err != nil {
		return fmt.Errorf("getpeername: %w", err)
	}
	if got := fromSockaddr(peer); got != s.target {
		return fmt.Errorf("getpeername gives %s", got)
	}
	return nil
}

// readAll reads until the peer closes.
func (s socket) readAll(buffer []byte) (int, error) {
	total := 0
	for total < len(buffer) {
		n, err := unix.Read(s.fd, buffer[total:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return total, fmt.Errorf("read: %w", errTimeout)
		case err != nil:
			return total, fmt.Errorf("read: %w", err)
		case n == 0:
			return total, nil
		}
		total += n
	}
	return total, fmt.Errorf("read: answer longer than %d bytes", len(buffer))
}

// send sends a datagram, to the target if the socket is not connected.
func (s socket) send(payload []byte, connected bool) error {
	for {
		var err error
		if connected {
			_, err = unix.Write(s.fd, payload)
		} else {
			err = unix.Sendto(s.fd, payload, 0, toSockaddr(s.target))
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		return nil
	}
}

// receive reads a datagram, which must come from the target as far as the
// application can tell.
func (s socket) receive(buffer []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, fmt.Errorf("receive: %w", errTimeout)
		case err != nil:
			return 0, fmt.Errorf("receive: %w", err)
		}
		if got := fromSockaddr(from); got != s.target {
			return 0, fmt.Errorf("answer comes from %s", got)
		}
		return n, nil
	}
}

func toSockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// fromSockaddr returns the zero value for what is neither IPv4 nor IPv6.
func fromSockaddr(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}
