package kube

import (
	"maps"
	"sync"
)

// serverStates is which servers answer.
type serverStates struct {
	mu   sync.Mutex
	last string           // URL of the one that answered last
	why  map[string]error // that it did not answer the last time, nil where it did
}

func newServerStates() *serverStates { return &serverStates{why: map[string]error{}} }

// asked notes a question. A server that never answered is silent until it does.
func (s *serverStates) asked(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.why[server]; !known {
		s.why[server] = errSilent
	}
}

// answered notes an answer, or why there is none.
func (s *serverStates) answered(server string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why[server] = err; err == nil {
		s.last = server
	}
}

func (s *serverStates) state() (last string, why map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, maps.Clone(s.why)
}
