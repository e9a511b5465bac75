package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

const (
	// patience is how long a sender waits at most before it looks whether the
	// run was ended.
	patience = 50 * time.Millisecond
	// startsAtOnce bounds how many operations begin before events are looked
	// at: behind its time, a sender must not go deaf.
	startsAtOnce = 32
	// bufferSize is what is read at once.
	bufferSize = 64 << 10
)

// sender is a thread that runs its share of a load.
type sender struct {
	*record
	spec      *Spec
	index     int
	began     time.Time // of the clock
	protocol  protocol
	poller    *netio.Poller
	sockaddrs []unix.Sockaddr // of the targets
	families  []int
	conns     []conn
	free      []int32 // slots without an operation, a ring
	head      int     // of the ring: the one that was free longest
	frees     int
	freed     int64 // when a slot became free after there was none
	busy      int   // operations under way
	sources   *sources
	arrivals  *arrivals // nil in a closed loop
	sequence  uint64
	first     int64 // when the first operation may begin
	scan      int64 // when to look for operations out of time
	stopped   int64 // when the run was ended, 0: not yet
	buffer    [bufferSize]byte
	cpu       threadTime
}

func (s *sender) now() int64 { return int64(time.Since(s.began)) }

// newSender returns a sender that has its memory, and no socket yet.
func newSender(spec *Spec, index int, began time.Time) (*sender, error) {
	p, err := protocolOf(spec)
	if err != nil {
		return nil, err
	}
	poller, err := netio.NewPoller()
	if err != nil {
		return nil, err
	}
	share := spec.Connections / spec.Senders
	if index < spec.Connections%spec.Senders {
		share++
	}
	s := &sender{
		record: newRecord(spec), spec: spec, index: index, began: began, protocol: p, poller: poller,
		sources: newSources(spec, index), conns: make([]conn, share), free: make([]int32, share),
		sequence: uint64(index) << 48,
	}
	for _, t := range spec.Targets {
		s.sockaddrs = append(s.sockaddrs, netio.Sockaddr(t))
		s.families = append(s.families, netio.Family(t.Addr()))
	}
	for i := range s.conns {
		c := &s.conns[i]
		c.fd, c.slot, c.target = -1, int32(i), (i*spec.Senders+index)%len(spec.Targets)
		if p.reader != nil {
			c.reader = p.reader()
		}
		s.release(c)
	}
	return s, nil
}

func protocolOf(spec *Spec) (protocol, error) {
	message := make([]byte, spec.Request)
	wire.Request{Length: uint32(spec.Request), Answer: uint32(spec.Response)}.Put(message)
	switch spec.Kind {
	case Connect:
		return protocol{socket: unix.SOCK_STREAM}, nil
	case CRR, RR:
		return protocol{socket: unix.SOCK_STREAM, request: message, sequenced: true, reader: func() answerReader { return new(messageReader) }}, nil
	case UDP, SendTo:
		reader := func() answerReader { return new(datagramReader) }
		return protocol{socket: unix.SOCK_DGRAM, unconnected: spec.Kind == SendTo, request: message, sequenced: true, reader: reader}, nil
	case HTTP:
		reader := func() answerReader { return &httpReader{header: spec.BackendHeader} }
		return protocol{socket: unix.SOCK_STREAM, request: httpRequest(spec), reader: reader}, nil
	}
	return protocol{}, fmt.Errorf("kind %q has no operations", spec.Kind)
}

func httpRequest(spec *Spec) []byte {
	host := orElse(spec.Host, spec.Targets[0].String())
	text := "GET " + spec.Path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: headgate-bench\r\nAccept: */*\r\n"
	if spec.PerSocket == 1 {
		text += "Connection: close\r\n"
	}
	return []byte(text + "\r\n")
}

// run sends from begin on to the end of the window, and ends what is under way.
func (s *sender) run(ctx context.Context, begin int64) error {
	s.first = begin
	s.open(begin + s.spec.WarmUp.Nanoseconds())
	if s.spec.Rate > 0 {
		s.arrivals = newArrivals(s.spec, s.index, begin)
	}
	for {
		now := s.now()
		if s.stopped == 0 && ctx.Err() != nil {
			s.stopped = now
			s.end = min(s.end, max(now, s.begin))
		}
		if s.over(now) {
			s.giveUp(now)
			return nil
		}
		s.cpu.look(now, s.window)
		s.start(now)
		s.expire(now)
		if err := s.poller.Wait(s.wait(s.now()), s.handle); err != nil {
			return err
		}
	}
}

// over says whether nothing is left to do or to wait for.
func (s *sender) over(now int64) bool {
	switch {
	case now < s.end && s.stopped == 0:
		return false
	case s.busy > 0:
		return false
	case s.stopped > 0:
		return true
	}
	return !s.owes() || now >= s.end+s.spec.Timeout.Nanoseconds()
}

// owes says whether operations were due before the end that have not begun.
func (s *sender) owes() bool { return s.arrivals != nil && s.arrivals.due() < s.end }

// giveUp counts what should have begun and never did.
func (s *sender) giveUp(now int64) {
	s.cpu.look(max(now, s.end), s.window)
	if s.stopped > 0 {
		return // not due, for the run was ended
	}
	for ; s.owes(); s.arrivals.advance() {
		due := s.arrivals.due()
		s.fail(operation{due, due, now, now}, result.NotStarted, nil)
	}
}

// start begins what is due, as far as there are connections for it.
func (s *sender) start(now int64) {
	if s.stopped > 0 || now < s.first {
		return
	}
	for range startsAtOnce {
		if s.frees == 0 {
			return
		}
		o := operation{due: now, could: now, began: now}
		if s.arrivals != nil {
			if !s.owes() || s.arrivals.due() > now || now >= s.end+s.spec.Timeout.Nanoseconds() {
				return
			}
			o.due, o.could = s.arrivals.due(), s.freed
			s.arrivals.advance()
		} else if now >= s.end {
			return
		}
		s.operate(s.take(), o)
		now = s.now()
	}
}

// wait returns how long nothing is to be done without an event.
func (s *sender) wait(now int64) time.Duration {
	until := now + patience.Nanoseconds()
	if s.busy > 0 {
		until = min(until, s.scan)
	}
	if s.frees > 0 && s.stopped == 0 {
		if s.arrivals == nil && now < s.end {
			return time.Duration(max(s.first-now, 0))
		}
		if s.arrivals != nil && s.owes() {
			until = min(until, s.arrivals.due())
		}
	}
	return time.Duration(until - now)
}

// expire ends operations that are out of time. It looks at all of them, a few
// dozen times in a timeout.
func (s *sender) expire(now int64) {
	if now < s.scan {
		return
	}
	s.scan = now + max(s.spec.Timeout.Nanoseconds()/64, int64(time.Millisecond))
	for i := range s.conns {
		c := &s.conns[i]
		if c.state >= connecting && now-c.began >= s.spec.Timeout.Nanoseconds() {
			s.finish(c, errTimeout)
		}
	}
}

// take returns the connection that was without operation longest: so all are
// used in turn.
func (s *sender) take() *conn {
	c := &s.conns[s.free[s.head]]
	s.head = (s.head + 1) % len(s.free)
	s.frees--
	s.busy++
	return c
}

// release gives a connection back.
func (s *sender) release(c *conn) {
	if s.frees == 0 {
		s.freed = s.now()
	}
	s.free[(s.head+s.frees)%len(s.free)] = c.slot
	s.frees++
}

func (s *sender) close() {
	for i := range s.conns {
		if s.conns[i].fd >= 0 {
			s.hangUp(&s.conns[i], false)
		}
	}
	_ = s.poller.Close()
}

// errDrained says that there is nothing to read at the moment.
var errDrained = errors.New("nothing to read")
