package load

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// operate begins an operation.
func (s *sender) operate(c *conn, o operation) {
	c.operation, c.bytes = o, 0
	if c.state == idle {
		s.ask(c)
		return
	}
	c.state = connecting
	if err := s.dial(c); err != nil {
		s.finish(c, err)
		return
	}
	if s.protocol.socket == unix.SOCK_STREAM {
		return
	}
	// There is no hand to shake.
	if err := s.checkPeer(c); err != nil {
		s.finish(c, err)
		return
	}
	s.ask(c)
}

// checkPeer fails if the kernel names another peer of a connection than its
// target.
func (s *sender) checkPeer(c *conn) error {
	if !s.spec.CheckPeer || s.protocol.unconnected {
		return nil
	}
	peer, err := unix.Getpeername(c.fd)
	if err != nil {
		return fmt.Errorf("getpeername: %w", err)
	}
	return s.wantTarget(c, peer, "getpeername gives")
}

// wantTarget fails if an address is not that of a connection's target.
func (s *sender) wantTarget(c *conn, addr unix.Sockaddr, what string) error {
	target := s.spec.Targets[c.target]
	if got := netio.AddrPort(addr); got != netip.AddrPortFrom(target.Addr().Unmap(), target.Port()) {
		return fmt.Errorf("%w: %s %s", errAnswer, what, got)
	}
	return nil
}

// ask sends the request.
func (s *sender) ask(c *conn) {
	c.state, c.sent = asking, 0
	s.sequence++
	c.sequence = s.sequence
	c.reader.begin(c.sequence)
	s.push(c)
}

// push sends what is left of the request. The sequence is put in before each
// piece, since connections share the memory.
func (s *sender) push(c *conn) {
	if s.protocol.sequenced {
		wire.PutSequence(s.protocol.request, c.sequence)
	}
	for c.sent < len(s.protocol.request) {
		n, err := s.write(c, s.protocol.request[c.sent:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			s.finish(c, fmt.Errorf("send: %w", err))
			return
		default:
			c.sent += n
			c.bytes += uint64(n)
			if s.counts(c.due) {
				s.bytes.Sent += uint64(n)
			}
		}
	}
	c.state = waiting
}

// write sends on a connection, or from a socket without one to its target.
func (s *sender) write(c *conn, data []byte) (int, error) {
	if s.protocol.unconnected {
		return len(data), unix.Sendto(c.fd, data, 0, s.sockaddrs[c.target])
	}
	return unix.Write(c.fd, data)
}

// handle goes on with a connection to which something happened.
func (s *sender) handle(e netio.Event) {
	c := &s.conns[e.Token().Slot]
	if c.fd < 0 || c.generation != e.Token().Generation {
		return
	}
	switch c.state {
	case opening, connecting:
		s.connected(c, e)
	case asking:
		s.push(c)
		if c.state == waiting {
			s.read(c)
		}
	case waiting:
		s.read(c)
	case idle:
		s.listen(c)
	}
}

// connected goes on when the kernel says that a connection is there, or will
// not be.
func (s *sender) connected(c *conn, e netio.Event) {
	var err error
	if e.Lost() {
		code, _ := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		err = fmt.Errorf("connect: %w", unix.Errno(orElse(code, int(unix.ECONNRESET))))
	} else {
		err = s.checkPeer(c)
	}
	switch {
	case err != nil && c.state == opening:
		s.hangUp(c, false)
	case err != nil:
		s.finish(c, err)
	case c.state == opening:
		c.state = idle
	case s.protocol.reader == nil:
		s.finish(c, nil)
	default:
		s.ask(c)
	}
}

// read reads what has come.
func (s *sender) read(c *conn) {
	for c.state == waiting {
		n, err := s.receive(c)
		if errors.Is(err, errDrained) {
			return
		}
		if err == nil {
			c.bytes += uint64(n)
			if s.counts(c.due) {
				s.bytes.Received += uint64(n)
			}
			var whole bool
			if whole, err = c.reader.take(s.buffer[:n]); !whole && err == nil {
				continue
			}
		}
		s.finish(c, err)
	}
}

// receive reads once.
func (s *sender) receive(c *conn) (int, error) {
	for {
		n, from, err := s.readFrom(c)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, errDrained
		case err != nil:
			return 0, fmt.Errorf("receive: %w", err)
		case n == 0 && s.protocol.socket == unix.SOCK_STREAM:
			return 0, fmt.Errorf("receive: %w", errClosed)
		case s.protocol.unconnected:
			return n, s.wantTarget(c, from, "it comes from")
		}
		return n, nil
	}
}

// readFrom reads once, and says who sent it if the socket is not connected.
func (s *sender) readFrom(c *conn) (n int, from unix.Sockaddr, err error) {
	if s.protocol.unconnected {
		return unix.Recvfrom(c.fd, s.buffer[:], 0)
	}
	n, err = unix.Read(c.fd, s.buffer[:])
	return n, nil, err
}

// listen looks at a connection that has nothing to do: it may have been lost.
// Answers that come too late are dropped.
func (s *sender) listen(c *conn) {
	for {
		_, err := s.receive(c)
		switch {
		case errors.Is(err, errDrained):
			return
		case err == nil:
			continue
		}
		if s.protocol.socket == unix.SOCK_STREAM {
			now := s.now()
			s.lose(now, now)
		}
		s.hangUp(c, false)
		return
	}
}

// finish ends an operation, well or not.
func (s *sender) finish(c *conn, err error) {
	c.ended = s.now()
	established := c.state >= asking
	c.used++
	if err == nil {
		s.complete(c.operation, c.bytes)
		s.note(c)
	} else {
		s.fail(c.operation, kindOf(err), err)
	}
	s.busy--
	switch {
	case c.fd < 0:
		c.state = absent
	case errors.Is(err, unix.ECONNABORTED): // somebody has told a datagram socket, too: it has no peer any more
		if established && s.protocol.socket == unix.SOCK_STREAM {
			s.lose(c.ended, c.due)
		}
		s.hangUp(c, false)
	case err != nil && s.protocol.socket == unix.SOCK_STREAM:
		if established && !errors.Is(err, errTimeout) && !errors.Is(err, errAnswer) && !errors.Is(err, wire.ErrNotOurs) {
			s.lose(c.ended, c.due)
		}
		s.hangUp(c, false)
	case s.spec.PerSocket > 0 && c.used >= s.spec.PerSocket:
		s.hangUp(c, s.spec.FIN)
	case c.reader.last():
		s.hangUp(c, true)
	default:
		c.state = idle
	}
	s.release(c)
}

// note notes who answered.
func (s *sender) note(c *conn) {
	if c.reader == nil {
		return
	}
	name := c.reader.backend()
	if len(name) == 0 || !s.counts(c.ended) {
		return // a socket from the warm-up is a choice when it counts first
	}
	chosen, choice := c.dialled, !c.named
	if c.named && !bytes.Equal(name, c.name) { // datagrams have moved on
		chosen, choice = c.began, true
	}
	c.named, c.name = true, append(c.name[:0], name...)
	s.answered(name, choice, chosen)
}
