package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// openAtOnce bounds how many connections a sender opens at the same time
// before a run: more would not fit into the backlog of a server.
const openAtOnce = 128

// connectAll opens the connections that are kept, so that the run begins with
// all of them. One that cannot be opened is left to the operation that needs
// it.
func (s *sender) connectAll() error {
	if s.protocol.socket != unix.SOCK_STREAM || s.spec.PerSocket == 1 {
		return nil
	}
	next := 0
	limit := s.now() + s.spec.Timeout.Nanoseconds()
	for {
		under := s.count(opening)
		for ; under < openAtOnce && next < len(s.conns); next++ {
			if s.dial(&s.conns[next]) == nil {
				s.conns[next].state = opening
				under++
			}
		}
		if under == 0 {
			return nil
		}
		before := under
		if err := s.poller.Wait(10*time.Millisecond, s.handle); err != nil {
			return err
		}
		if s.count(opening) < before {
			limit = s.now() + s.spec.Timeout.Nanoseconds() // it goes on
		} else if s.now() > limit {
			s.hangUpAll(opening)
			return nil
		}
	}
}

func (s *sender) count(state state) (n int) {
	for i := range s.conns {
		if s.conns[i].state == state {
			n++
		}
	}
	return n
}

func (s *sender) hangUpAll(state state) {
	for i := range s.conns {
		if s.conns[i].state == state {
			s.hangUp(&s.conns[i], false)
		}
	}
}
