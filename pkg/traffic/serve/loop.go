package serve

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

const (
	bufferSize = 64 << 10
	batchSize  = 64
	// patience is how long a loop waits at most before it looks whether the
	// server is closing.
	patience = 50 * time.Millisecond
	// acceptAtOnce bounds how many connections a loop accepts before it looks
	// at those that it has.
	acceptAtOnce = 32
)

// loop is a thread that serves. Listening sockets are in all loops, a
// connection stays with the loop that accepted it.
type loop struct {
	server  *Server
	poller  *netio.Poller
	streams []*stream // by slot, after two slots for each endpoint
	free    []int32
	batch   *netio.Batch
	buffer  []byte
	answer  []byte    // grows to the longest answer
	payload []byte    // of downloads
	late    []delayed // by time
}

// delayed is an answer that is to go out later.
type delayed struct {
	due  int64 // nanoseconds since Server.began
	send func()
}

func newLoop(s *Server) (*loop, error) {
	poller, err := netio.NewPoller()
	if err != nil {
		return nil, err
	}
	l := &loop{server: s, poller: poller, batch: netio.NewBatch(batchSize, 2048), buffer: make([]byte, bufferSize), payload: make([]byte, bufferSize)}
	for i, e := range s.endpoints {
		for slot, fd := range []int{e.tcp, e.udp} {
			// Exclusive: one of the loops wakes up, not all.
			if err := poller.Add(fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, netio.Token{Slot: int32(2*i + slot)}); err != nil {
				return nil, errors.Join(err, l.close())
			}
		}
	}
	return l, nil
}

func (l *loop) close() error {
	for _, s := range l.streams {
		if s.fd >= 0 {
			_ = unix.Close(s.fd)
		}
	}
	l.batch.Close()
	return l.poller.Close()
}

func (l *loop) now() int64 { return int64(time.Since(l.server.began)) }

func (l *loop) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for !l.server.closing.Load() {
		// It fails only if the poller is broken, and then the loop is over.
		if err := l.poller.Wait(l.wait(), l.handle); err != nil {
			return
		}
		l.sendLate()
	}
}

// wait returns how long nothing is to be done without an event.
func (l *loop) wait() time.Duration {
	if len(l.late) == 0 {
		return patience
	}
	return min(patience, time.Duration(l.late[0].due-l.now()))
}

func (l *loop) handle(e netio.Event) {
	l.stall()
	slot := int(e.Token().Slot)
	if i := slot / 2; i < len(l.server.endpoints) {
		if slot%2 == 0 {
			l.accept(l.server.endpoints[i])
		} else {
			l.receive(l.server.endpoints[i])
		}
		return
	}
	s := l.streams[slot-2*len(l.server.endpoints)]
	if s.fd >= 0 && s.generation == e.Token().Generation {
		l.serve(s)
	}
}

// stall waits until a stall is over.
func (l *loop) stall() {
	for l.server.stallUntil.Load() > 0 && !l.server.closing.Load() {
		left := time.Duration(l.server.stallUntil.Load() - l.now())
		if left <= 0 {
			return
		}
		time.Sleep(min(left, patience))
	}
}

func (l *loop) accept(e *endpoint) {
	for range acceptAtOnce {
		fd, _, err := unix.Accept4(e.tcp, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR) {
			continue // the client is gone already
		}
		if err != nil {
			return // none left, or no descriptor: the poller reminds us
		}
		e.connections.Add(1)
		e.seen(l.now())
		l.take(e, fd)
	}
}

// take adds a connection to the loop.
func (l *loop) take(e *endpoint, fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // slower without, no worse
	if len(l.free) == 0 {
		l.free = append(l.free, int32(len(l.streams)))
		l.streams = append(l.streams, &stream{fd: -1})
	}
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	s := l.streams[slot]
	s.reset(e, fd, slot)
	if err := l.poller.Add(fd, streamEvents, l.token(s)); err != nil {
		l.drop(s)
	}
}

// streamEvents are those of a connection.
const streamEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// token is what the poller knows a connection by.
func (l *loop) token(s *stream) netio.Token {
	return netio.Token{Slot: s.slot + int32(2*len(l.server.endpoints)), Generation: s.generation}
}

// drop closes a connection.
func (l *loop) drop(s *stream) {
	_ = unix.Close(s.fd)
	s.fd = -1
	s.generation++
	l.free = append(l.free, s.slot)
}

// later does send now, or later if the server is to be late.
func (l *loop) later(send func()) {
	delay := l.server.faults.Load().Delay
	l.late = append(l.late, delayed{l.now() + delay.Nanoseconds(), send})
}

func (l *loop) sendLate() {
	for len(l.late) > 0 && l.late[0].due <= l.now() {
		l.late[0].send()
		l.late = l.late[1:]
	}
}

// answerRoom returns memory for an answer of some length, valid until the next
// call: zeros, with whatever an answer before has written at its beginning.
func (l *loop) answerRoom(length int) []byte {
	if cap(l.answer) < length {
		l.answer = make([]byte, length)
	}
	room := l.answer[:length]
	clear(room[:min(length, wire.AnswerHeader+wire.MaxName)])
	return room
}
