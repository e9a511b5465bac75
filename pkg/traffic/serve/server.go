// Package serve is the server that the load generator talks to. It says who
// it is in every answer, answers as long as it is asked to, over TCP and UDP
// in the words of package wire and over HTTP/1.1 on the same ports, and counts
// what nobody wants an answer to. It can be late, deaf and rude on purpose, so
// that a measurement can be measured.
package serve

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// Endpoint is an address and a port that a server listens on, for TCP and UDP,
// and who it says it is there.
type Endpoint struct {
	Name string // up to wire.MaxName bytes, without line breaks
	Addr netip.AddrPort
}

// Options say how to serve. The zero value serves well.
type Options struct {
	// Loops is how many threads serve, 0 means one for each CPU.
	Loops int
	// Within calls what makes sockets, in the network namespace that they
	// are to be in; nil means that of the caller.
	Within func(make func() error) error
	Faults Faults
}

// Faults are what a server does wrong on purpose.
type Faults struct {
	// Delay is how much later than it could a server answers.
	Delay time.Duration
	// DropEvery is n for a server that takes no notice of each n-th request,
	// one-way datagrams among them.
	DropEvery int
	// ResetEvery is n for a server that resets the connection at each n-th
	// request over TCP.
	ResetEvery int
}

// Stats are what an endpoint has seen.
type Stats struct {
	Connections uint64 // of TCP, accepted
	Requests    uint64 // over TCP and UDP, dropped ones among them
	Datagrams   uint64 // one-way
	Bytes       uint64 // of bulk loads
	// First and Last are when a connection was accepted or a datagram came,
	// the zero time if never.
	First, Last time.Time
}

// Server serves until it is closed.
type Server struct {
	began      time.Time
	options    Options
	endpoints  []*endpoint
	loops      []*loop
	flows      flows
	faults     atomic.Pointer[Faults]
	stallUntil atomic.Int64  // nanoseconds since began
	requests   atomic.Uint64 // for Faults
	closing    atomic.Bool
	running    sync.WaitGroup
}

// endpoint is an Endpoint with its sockets and what it has seen.
type endpoint struct {
	Endpoint
	answersAs                               atomic.Pointer[string] // Name, until it is renamed
	tcp, udp                                int                    // descriptors
	connections, requests, datagrams, bytes atomic.Uint64
	first, last                             atomic.Int64 // nanoseconds since Server.began, 0 means never
}

// Start listens on all endpoints and serves in the background.
func Start(endpoints []Endpoint, options Options) (*Server, error) {
	if options.Loops <= 0 {
		options.Loops = runtime.GOMAXPROCS(0)
	}
	if options.Within == nil {
		options.Within = func(make func() error) error { return make() }
	}
	s := &Server{began: time.Now(), options: options}
	s.flows.init()
	s.SetFaults(options.Faults)
	if err := options.Within(func() error { return s.listen(endpoints) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for range options.Loops {
		l, err := newLoop(s)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.loops = append(s.loops, l)
	}
	for _, l := range s.loops {
		s.running.Go(l.run)
	}
	return s, nil
}

func (s *Server) listen(endpoints []Endpoint) error {
	for _, e := range endpoints {
		if len(e.Name) > wire.MaxName {
			return fmt.Errorf("serve as %q: the name has more than %d bytes", e.Name, wire.MaxName)
		}
		tcp, err := netio.ListenTCP(e.Addr)
		if err != nil {
			return err
		}
		// Known from here on, so that Close closes it.
		opened := &endpoint{Endpoint: e, tcp: tcp, udp: -1}
		opened.answersAs.Store(&opened.Name)
		s.endpoints = append(s.endpoints, opened)
		if opened.udp, err = netio.ListenUDP(e.Addr); err != nil {
			return err
		}
	}
	return nil
}

// Stall makes the server take no notice of anything for a while from now on.
// What comes in the meantime waits in the sockets.
func (s *Server) Stall(d time.Duration) { s.stallUntil.Store(int64(time.Since(s.began) + d)) }

// SetFaults changes what the server does wrong, from the next request on.
func (s *Server) SetFaults(f Faults) { s.faults.Store(&f) }

// Rename makes every endpoint of a name say another one from now on: for a client
// it is as if another server had come in its place. Stats go on under the first.
func (s *Server) Rename(name, to string) error {
	if len(to) > wire.MaxName {
		return fmt.Errorf("serve as %q: the name has more than %d bytes", to, wire.MaxName)
	}
	for _, e := range s.endpoints {
		if e.Name == name {
			e.answersAs.Store(&to)
		}
	}
	return nil
}

// Stats returns what was seen so far, by name; endpoints of the same name are
// one.
func (s *Server) Stats() map[string]Stats {
	all := make(map[string]Stats)
	for _, e := range s.endpoints {
		sum := all[e.Name]
		sum.Connections += e.connections.Load()
		sum.Requests += e.requests.Load()
		sum.Datagrams += e.datagrams.Load()
		sum.Bytes += e.bytes.Load()
		if first := e.first.Load(); first != 0 {
			at := s.began.Add(time.Duration(first))
			if sum.First.IsZero() || at.Before(sum.First) {
				sum.First = at
			}
			if last := s.began.Add(time.Duration(e.last.Load())); last.After(sum.Last) {
				sum.Last = last
			}
		}
		all[e.Name] = sum
	}
	return all
}

// Close ends everything: new connections are refused from now on, others are
// reset or closed, as what waits in them has it. A second call does nothing.
func (s *Server) Close() error {
	if s.closing.Swap(true) {
		return nil
	}
	var errs []error
	for _, e := range s.endpoints {
		// The loops still run for a moment: a queue that nobody accepts from
		// would take connections all the same.
		if err := unix.Shutdown(e.tcp, unix.SHUT_RDWR); err != nil {
			errs = append(errs, fmt.Errorf("stop to listen on %s: %w", e.Addr, err))
		}
	}
	s.running.Wait()
	for _, l := range s.loops {
		errs = append(errs, l.close())
	}
	for _, e := range s.endpoints {
		errs = append(errs, netio.Close(e.tcp), netio.Close(e.udp))
	}
	return errors.Join(errs...)
}

// name is who answers.
func (e *endpoint) name() string { return *e.answersAs.Load() }

// seen notes that a client came.
func (e *endpoint) seen(now int64) {
	e.last.Store(now)
	if e.first.Load() == 0 {
		e.first.CompareAndSwap(0, now)
	}
}

// fault says what is to go wrong with a request.
type fault int

const (
	noFault fault = iota
	dropIt
	resetIt
)

func (s *Server) fault() fault {
	f := s.faults.Load()
	if f.DropEvery == 0 && f.ResetEvery == 0 {
		return noFault
	}
	n := s.requests.Add(1)
	switch {
	case f.DropEvery > 0 && n%uint64(f.DropEvery) == 0:
		return dropIt
	case f.ResetEvery > 0 && n%uint64(f.ResetEvery) == 0:
		return resetIt
	}
	return noFault
}
