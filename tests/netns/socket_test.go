package netns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// socket is a blocking socket without anything between the test and the
// kernel, so that it is exactly of the kind that the test names. Its methods
// take and return addresses as the socket has them: those of a mapped socket
// are IPv4-mapped.
type socket struct {
	tb   testing.TB
	fd   int
	kind kind
}

// kind is a kind of socket.
type kind struct {
	name   string
	family int  // unix.AF_…
	mapped bool // an AF_INET6 socket that talks IPv4
}

var (
	inet   = kind{"IPv4", unix.AF_INET, false}
	inet6  = kind{"IPv6", unix.AF_INET6, false}
	mapped = kind{"IPv4 by an IPv6 socket", unix.AF_INET6, true}
)

var kinds = []kind{inet, inet6, mapped}

// of is an address as a socket of this kind has it.
func (k kind) of(a netip.AddrPort) netip.AddrPort {
	if !k.mapped {
		return a
	}
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

// pick returns the first address for IPv4 and the second for IPv6.
func (k kind) pick(v4, v6 string) string {
	if k == inet6 {
		return v6
	}
	return v4
}

func mustSocket(tb testing.TB, k kind, typ int) *socket {
	tb.Helper()
	return mustSocketOf(tb, k, typ, 0)
}

func mustSocketOf(tb testing.TB, k kind, typ, protocol int) *socket {
	tb.Helper()
	fd, err := unix.Socket(k.family, typ|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		tb.Fatalf("socket of %s: %v", k.name, err)
	}
	s := &socket{tb, fd, k}
	tb.Cleanup(s.close)
	// So that a test which waits in vain says where.
	limit := unix.Timeval{Sec: 10}
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// close closes the socket once; a connection ends without a trace.
func (s *socket) close() {
	if s.fd < 0 {
		return
	}
	_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(s.fd)
	s.fd = -1
}

func (s *socket) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if s.kind.family == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// again calls a system call until no signal of the Go runtime comes between.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *socket) connect(to netip.AddrPort) error {
	return again(func() error { return unix.Connect(s.fd, s.sockaddr(to)) })
}

func (s *socket) mustConnect(to netip.AddrPort) {
	s.tb.Helper()
	if err := s.connect(to); err != nil {
		s.tb.Fatalf("connect a socket of %s to %s: %v", s.kind.name, to, err)
	}
}

// disconnect makes a UDP socket an unconnected one again.
func (s *socket) disconnect() {
	s.tb.Helper()
	sa := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if err := rawConnect(s.fd, &sa); err != nil {
		s.tb.Fatalf("disconnect: %v", err)
	}
}

// peer is what getpeername says.
func (s *socket) peer() (netip.AddrPort, error) {
	sa, err := unix.Getpeername(s.fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return fromSockaddr(sa), nil
}

func (s *socket) wantPeer(want netip.AddrPort, when string) {
	s.tb.Helper()
	got, err := s.peer()
	if err != nil || got != s.kind.of(want) {
		s.tb.Errorf("%s: getpeername says %v (%v), want %v", when, got, err, s.kind.of(want))
	}
}

// local is what getsockname says.
func (s *socket) local() netip.AddrPort {
	s.tb.Helper()
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		s.tb.Fatal(err)
	}
	return fromSockaddr(sa)
}

func fromSockaddr(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}

// send sends on a connected socket.
func (s *socket) send(text string) {
	s.tb.Helper()
	if err := again(func() error { _, err := unix.Write(s.fd, []byte(text)); return err }); err != nil {
		s.tb.Fatalf("send: %v", err)
	}
}

func (s *socket) sendTo(to netip.AddrPort, text string) error {
	return again(func() error { return unix.Sendto(s.fd, []byte(text), 0, s.sockaddr(to)) })
}

func (s *socket) sendMsg(to netip.AddrPort, text string) error {
	return again(func() error { return unix.Sendmsg(s.fd, []byte(text), nil, s.sockaddr(to), 0) })
}

// receive is recvfrom: the text and where it says it comes from.
func (s *socket) receive() (text string, from netip.AddrPort) {
	s.tb.Helper()
	return s.receiveBy(func(buf []byte) (int, unix.Sockaddr, error) { return unix.Recvfrom(s.fd, buf, 0) })
}

func (s *socket) receiveMsg() (text string, from netip.AddrPort) {
	s.tb.Helper()
	return s.receiveBy(func(buf []byte) (int, unix.Sockaddr, error) {
		n, _, _, from, err := unix.Recvmsg(s.fd, buf, nil, 0)
		return n, from, err
	})
}

func (s *socket) receiveBy(call func([]byte) (int, unix.Sockaddr, error)) (string, netip.AddrPort) {
	s.tb.Helper()
	buf := make([]byte, 256)
	var n int
	var from unix.Sockaddr
	err := again(func() (err error) { n, from, err = call(buf); return err })
	if err != nil {
		s.tb.Fatalf("receive: %v", err)
	}
	return string(buf[:n]), fromSockaddr(from)
}

// ask sends a datagram to an address and returns who answers. The answer must
// come from that address.
func (s *socket) ask(to netip.AddrPort) string {
	s.tb.Helper()
	if err := s.sendTo(to, "who"); err != nil {
		s.tb.Fatalf("send to %s: %v", to, err)
	}
	who, from := s.receive()
	if from != s.kind.of(to) {
		s.tb.Errorf("asked %s, %q answers from %s", to, who, from)
	}
	return who
}

// dialTCP connects a new socket and returns who answers. The connection is to
// that address as the socket sees it.
func dialTCP(tb testing.TB, k kind, to netip.AddrPort) (*socket, string) {
	tb.Helper()
	s := mustSocket(tb, k, unix.SOCK_STREAM)
	s.mustConnect(to)
	who, _ := s.receive()
	s.wantPeer(to, fmt.Sprintf("connected to %s", to))
	return s, who
}
