package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// ServerSpec says where a server listens: every pair of an address and a port.
type ServerSpec struct {
	Name    string // what it answers, without spaces
	Addrs   []netip.Addr
	TCPPort uint16 // host order
	UDPPort uint16 // host order
}

// Server answers with its name: a TCP connection gets the name and is closed,
// a UDP datagram is sent back with the name and a space put before it.
type Server struct {
	start     time.Time
	tcp, udp  counter
	listeners []net.Listener
	sockets   []*net.UDPConn
	running   sync.WaitGroup
}

// counter is how often something happened and when it did last.
type counter struct {
	count atomic.Uint64
	last  atomic.Int64 // nanoseconds since Server.start
}

// Serve starts a server in a namespace.
func Serve(ns *Namespace, spec ServerSpec) (*Server, error) {
	s := &Server{start: time.Now()}
	for _, addr := range spec.Addrs {
		if err := s.listen(ns, spec, addr); err != nil {
			return nil, errors.Join(fmt.Errorf("serve %s: %s", spec.Name, err), s.Close())
		}
	}
	return s, nil
}

// TCP returns how many connections the server accepted, and when it did last:
// the zero time if never.
func (s *Server) TCP() (uint64, time.Time) { return s.tcp.read(s.start) }

// UDP returns how many datagrams the server received, and when it did last:
// the zero time if never.
func (s *Server) UDP() (uint64, time.Time) { return s.udp.read(s.start) }

// Close stops the server.
func (s *Server) Close() error {
	var errs []error
	for _, listener := range s.listeners {
		errs = append(errs, listener.Close())
	}
	for _, socket := range s.sockets {
		errs = append(errs, socket.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}

func (s *Server) listen(ns *Namespace, spec ServerSpec, addr netip.Addr) error {
	// Multipath TCP, which Go listens with if it can, would only add cost.
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return ns.Do(func() error {
		listener, err := config.Listen(context.Background(), "tcp", netip.AddrPortFrom(addr, spec.TCPPort).String())
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, listener)
		s.running.Go(func() { s.answerTCP(listener, []byte(spec.Name)) })
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, spec.UDPPort)))
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, socket)
		s.running.Go(func() { s.answerUDP(socket, []byte(spec.Name+" ")) })
		return nil
	})
}

// answerTCP ends when the listener is closed. It answers one connection after
// the other: the name fits into any send buffer, so nothing here blocks, and
// what goes wrong with a connection is for its client to notice.
func (s *Server) answerTCP(listener net.Listener, name []byte) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of descriptors or memory, or the client is gone
			continue
		}
		s.tcp.add(s.start)
		_, _ = conn.Write(name)
		_ = conn.Close()
	}
}

// answerUDP ends when the socket is closed.
func (s *Server) answerUDP(socket *net.UDPConn, name []byte) {
	buffer := make([]byte, len(name)+1500)
	payload := buffer[copy(buffer, name):]
	for {
		n, client, err := socket.ReadFromUDPAddrPort(payload)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier answer
		}
		s.udp.add(s.start)
		_, _ = socket.WriteToUDPAddrPort(buffer[:len(name)+n], client)
	}
}

func (c *counter) add(start time.Time) {
	c.last.Store(int64(time.Since(start)))
	c.count.Add(1)
}

func (c *counter) read(start time.Time) (uint64, time.Time) {
	count := c.count.Load()
	if count == 0 {
		return 0, time.Time{}
	}
	return count, start.Add(time.Duration(c.last.Load()))
}
