package cli

import (
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// describedEvery is how often the agent is asked about all backends, while somebody looks.
const describedEvery = 10 * time.Second

// unknownEvery is how often it is asked at the most for a backend that it has not told of.
const unknownEvery = 5 * time.Second

// said is what the agent says of all backends, which takes some tenths of a second in a large cluster.
type said struct {
	mu     sync.Mutex
	all    *lb.Told
	asked  time.Time
	asking bool
}

// of returns what the agent has said, nil where none answers. Nobody waits for that but who looks first.
func (s *said) of(e *env) *lb.Told {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.asked.IsZero():
		s.all, s.asked = e.described(), time.Now()
	case time.Since(s.asked) >= describedEvery && !s.asking:
		s.asking = true
		go s.ask(e)
	}
	return s.all
}

func (s *said) ask(e *env) {
	all := e.described()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.asked, s.asking = all, time.Now(), false
}

// about returns what is said of a backend of a Service, nil where nobody knows it. Of one that was not there the agent is
// asked again.
func (s *said) about(e *env, backend lb.AddrPort, service lb.ServiceName) *lb.Description {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.Of(backend, service) == nil && time.Since(s.asked) >= unknownEvery {
		s.all, s.asked = e.described(), time.Now()
	}
	return s.all.Of(backend, service)
}
