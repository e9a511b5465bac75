package load

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
)

// state is what a connection is doing.
type state uint8

const (
	absent     state = iota // there is no socket
	opening                 // before the run: connecting, without an operation
	idle                    // connected, and nothing to do
	connecting              // an operation waits for the connection
	asking                  // a request is on its way
	waiting                 // for the answer
)

// conn is a slot for a socket, and the operation that is under way on it.
type conn struct {
	operation
	state      state
	fd         int
	generation int32
	slot       int32
	target     int    // index of the next or present one
	used       int    // operations of this socket
	dialled    int64  // when connect() was called
	sequence   uint64 // of the request
	sent       int    // bytes of the request
	bytes      uint64 // of the operation, both ways
	reader     answerReader
	named      bool   // somebody answered on this socket
	name       []byte // who did last
}

// protocol is what a kind of load does with a connection.
type protocol struct {
	socket      int  // SOCK_STREAM or SOCK_DGRAM
	unconnected bool // each datagram names its target
	request     []byte
	// sequenced requests carry a number that comes back.
	sequenced bool
	reader    func() answerReader // nil: connecting is all
}

// dial begins a connection. Without error it is connected, or will be.
func (s *sender) dial(c *conn) error {
	fd, err := unix.Socket(s.families[c.target], s.protocol.socket|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := s.prepare(fd, s.families[c.target]); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	c.dialled = s.now()
	if !s.protocol.unconnected {
		err = unix.Connect(fd, s.sockaddrs[c.target])
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EINTR) {
		return errors.Join(fmt.Errorf("connect: %w", err), unix.Close(fd))
	}
	// Not before connect(): what is not connected yet has news at once.
	token := netio.Token{Slot: c.slot, Generation: c.generation}
	if err := s.poller.Add(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, token); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	c.fd, c.used, c.named = fd, 0, false
	return nil
}

// prepare sets the options of a socket, and its source.
func (s *sender) prepare(fd, family int) error {
	if s.protocol.socket == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("set TCP_NODELAY: %w", err)
		}
	}
	return s.sources.bind(fd, family)
}

// hangUp closes a connection: with a FIN, or with a reset, which leaves no
// TIME_WAIT behind.
func (s *sender) hangUp(c *conn, peacefully bool) {
	if !peacefully && s.protocol.socket == unix.SOCK_STREAM {
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(c.fd)
	c.fd, c.state = -1, absent
	c.generation++
	c.target = (c.target + 1) % len(s.sockaddrs)
}

// sources hands out source addresses and ports.
type sources struct {
	prefixes []netip.Prefix
	family4  []netip.Prefix
	family6  []netip.Prefix
	turn     uint64
	first    uint16
	last     uint16
	port     uint16
}

func newSources(spec *Spec, sender int) *sources {
	s := &sources{prefixes: spec.Sources, first: spec.FirstPort, last: spec.LastPort, turn: uint64(sender)}
	for _, p := range spec.Sources {
		if p.Addr().Unmap().Is4() {
			s.family4 = append(s.family4, p.Masked())
		} else {
			s.family6 = append(s.family6, p.Masked())
		}
	}
	if s.first > 0 { // senders begin in different places, so that they seldom meet
		width := int(s.last) - int(s.first) + 1
		s.port = s.first + uint16(sender*width/max(spec.Senders, 1))
	}
	return s
}

// bindTries is how many ports are tried before none counts as free.
const bindTries = 64

// bind gives a socket the next source, if there is one of its family.
func (s *sources) bind(fd, family int) error {
	addr := s.addr(family)
	if !addr.IsValid() && s.first == 0 {
		return nil
	}
	if !addr.IsValid() {
		addr = netip.IPv6Unspecified()
		if family == unix.AF_INET {
			addr = netip.IPv4Unspecified()
		}
	}
	if s.first == 0 {
		// The port is chosen with the target known: one port serves many.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return fmt.Errorf("set IP_BIND_ADDRESS_NO_PORT: %w", err)
		}
	} else if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	var err error
	for range bindTries {
		if err = unix.Bind(fd, netio.Sockaddr(netip.AddrPortFrom(addr, s.nextPort()))); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("bind to source %s: %w", addr, err)
	}
	return nil
}

func (s *sources) nextPort() uint16 {
	if s.first == 0 {
		return 0
	}
	port := s.port
	if s.port++; s.port > s.last || s.port < s.first {
		s.port = s.first
	}
	return port
}

// addr returns the next source of a family: prefixes in turn, and in each the
// addresses in turn. Of IPv4 the first and the last of a prefix are left out.
func (s *sources) addr(family int) netip.Addr {
	prefixes := s.family6
	if family == unix.AF_INET {
		prefixes = s.family4
	}
	if len(prefixes) == 0 {
		return netip.Addr{}
	}
	turn := s.turn
	s.turn++
	p := prefixes[turn%uint64(len(prefixes))]
	turn /= uint64(len(prefixes))
	host := uint64(1) << min(p.Addr().BitLen()-p.Bits(), 32)
	if p.Addr().Is4() && host > 2 {
		return plus(p.Addr(), 1+turn%(host-2))
	}
	return plus(p.Addr(), turn%host)
}

// plus returns the address n after a, in its last 32 bits.
func plus(a netip.Addr, n uint64) netip.Addr {
	b := a.AsSlice()
	for i := len(b) - 1; i >= len(b)-4 && n > 0; i-- {
		n += uint64(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	sum, _ := netip.AddrFromSlice(b)
	return sum
}
