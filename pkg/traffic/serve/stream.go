package serve

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/wire"
)

// stream is a TCP connection.
type stream struct {
	endpoint   *endpoint
	fd         int // -1: none
	slot       int32
	generation int32
	head       []byte // the beginning of a request that is not whole
	skip       int    // bytes of the present request that are still to come
	request    wire.Request
	bulk       uint64 // bytes, if the request is a bulk one
	isBulk     bool
	isDownload bool
	ending     bool   // close when everything is sent
	out        []byte // what the kernel has not taken yet
}

// maxHead bounds the head of an HTTP request.
const maxHead = 8 << 10

func (s *stream) reset(e *endpoint, fd int, slot int32) {
	*s = stream{endpoint: e, fd: fd, slot: slot, generation: s.generation, head: s.head[:0], out: s.out[:0]}
}

// serve does what there is to do: events come once for each change.
func (l *loop) serve(s *stream) {
	if len(s.out) > 0 && !l.flush(s) {
		return
	}
	for s.fd >= 0 {
		n, err := unix.Read(s.fd, l.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if s.isDownload {
				l.pump(s)
			}
			return
		case err != nil:
			l.drop(s)
			return
		case n == 0:
			l.end(s)
			return
		}
		if !l.takeAll(s, l.buffer[:n]) {
			return
		}
	}
}

// end is the end of what the client sends.
func (l *loop) end(s *stream) {
	if !s.isBulk && !s.isDownload {
		l.drop(s)
		return
	}
	s.isBulk, s.isDownload = false, false
	s.ending = true
	name := s.endpoint.name()
	answer := l.answerRoom(wire.AnswerLength(0, name))
	wire.PutAnswer(answer, s.request.Sequence, s.bulk, name)
	l.write(s, answer)
}

// writesAtOnce keeps one connection from holding up the others.
const writesAtOnce = 16

// pump sends payload until the kernel takes no more, or for a while.
func (l *loop) pump(s *stream) {
	for range writesAtOnce {
		n, err := unix.Write(s.fd, l.payload)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			l.drop(s)
			return
		default:
			s.bulk += uint64(n)
			s.endpoint.bytes.Add(uint64(n))
		}
	}
	// There is more room, of which no event will tell.
	if err := l.poller.Again(s.fd, streamEvents, l.token(s)); err != nil {
		l.drop(s)
	}
}

// takeAll takes what has come. It returns false if the connection is gone.
func (l *loop) takeAll(s *stream, data []byte) bool {
	for len(data) > 0 {
		if s.isDownload {
			return true // nothing is to come
		}
		if s.isBulk {
			s.bulk += uint64(len(data))
			s.endpoint.bytes.Add(uint64(len(data)))
			return true
		}
		if s.skip > 0 {
			n := min(s.skip, len(data))
			s.skip -= n
			data = data[n:]
			if s.skip == 0 && !l.respond(s) {
				return false
			}
			continue
		}
		rest, whole, ok := l.takeHead(s, data)
		if !ok {
			l.drop(s)
			return false
		}
		data = rest
		if whole && s.skip == 0 && !s.isBulk && !s.isDownload && !l.respond(s) {
			return false
		}
	}
	return true
}

// takeHead takes what belongs to the head of a request. It returns what is
// behind it, whether the head is whole, and whether it makes sense so far.
func (l *loop) takeHead(s *stream, data []byte) (rest []byte, whole, ok bool) {
	before := len(s.head)
	s.head = append(s.head, data[:min(len(data), maxHead-before)]...)
	if len(s.head) < 4 {
		return nil, false, true
	}
	if !wire.IsRequest(s.head) {
		return s.takeHTTP(data, before)
	}
	if len(s.head) < wire.RequestHeader {
		return nil, false, true
	}
	r, err := wire.ParseRequest(s.head)
	if err != nil {
		return nil, false, false
	}
	s.head = s.head[:0]
	s.request = r
	s.isBulk = r.Flags&wire.Bulk != 0
	s.isDownload = r.Flags&wire.Download != 0
	if !s.isBulk && !s.isDownload {
		s.skip = int(r.Length) - wire.RequestHeader
	}
	return data[wire.RequestHeader-before:], true, true
}

// respond answers the present request. It returns false if the connection is
// gone.
func (l *loop) respond(s *stream) bool {
	s.endpoint.requests.Add(1)
	s.endpoint.seen(l.now())
	switch l.server.fault() {
	case dropIt:
		s.head = s.head[:0]
		return true
	case resetIt:
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		l.drop(s)
		return false
	}
	answer := l.compose(s)
	if l.server.faults.Load().Delay == 0 {
		return l.write(s, answer)
	}
	answer = bytes.Clone(answer)
	generation := s.generation
	l.later(func() {
		if s.fd >= 0 && s.generation == generation {
			l.write(s, answer)
		}
	})
	return true
}

// compose returns the answer to the present request, valid until the next.
func (l *loop) compose(s *stream) []byte {
	if len(s.head) > 0 { // the head of an HTTP request stays until it is answered
		answer := l.composeHTTP(s)
		s.head = s.head[:0]
		return answer
	}
	name := s.endpoint.name()
	answer := l.answerRoom(wire.AnswerLength(s.request.Answer, name))
	wire.PutAnswer(answer, s.request.Sequence, 0, name)
	return answer
}

// write sends data, or keeps what the kernel does not take. It returns false
// if the connection is gone.
func (l *loop) write(s *stream, data []byte) bool {
	if len(s.out) > 0 {
		s.out = append(s.out, data...)
		return true
	}
	n, err := unix.Write(s.fd, data)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		l.drop(s)
		return false
	}
	s.out = append(s.out[:0], data[max(n, 0):]...)
	if len(s.out) > 0 {
		return l.flush(s)
	}
	return l.sent(s)
}

// flush sends what is kept. It returns false if the connection is gone.
func (l *loop) flush(s *stream) bool {
	for len(s.out) > 0 {
		n, err := unix.Write(s.fd, s.out)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return true
		case err != nil:
			l.drop(s)
			return false
		default:
			s.out = s.out[:copy(s.out, s.out[n:])]
		}
	}
	return l.sent(s)
}

func (l *loop) sent(s *stream) bool {
	if s.ending {
		l.drop(s)
		return false
	}
	return true
}
