package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Backends come every so often, one on each node, and go by how many came after them: a
// backend is ready, then it ends, which takes as long as connections last, then it is removed,
// and serves on until proxies have heard of that. Rollouts overlap so that none of the
// steps, which last longer than that, is without backends that come, end and go.
const (
	rollEvery = 2500 * time.Millisecond
	readyFor  = 3 // the next one has been ready for 5 s when a backend ends
	endingFor = 2
	goneFor   = 2
)

// rollOn replaces the backends of a Service over and over until the context ends, and calls
// replaced each time some have been removed.
func (s *service) rollOn(ctx context.Context, w *world, replaced func()) error {
	generations := [][]*instance{s.backends} // the last is the newest
	defer func() { s.backends = slices.Concat(generations...) }()
	for ctx.Err() == nil {
		renewed, err := s.start(w)
		if err != nil {
			return err
		}
		generations = append(generations, renewed)
		ready, ending, gone := byAge(generations)
		// Not until the context ends: of the two families one would be behind.
		if err := s.put(context.WithoutCancel(ctx), w, slices.Concat(ready...), slices.Concat(ending...)); err != nil {
			return err
		}
		if len(gone) > 0 {
			replaced()
		}
		if len(gone) > goneFor {
			if err := closeAll(gone[0]); err != nil {
				return err
			}
			generations = generations[1:]
		}
		select {
		case <-ctx.Done():
		case <-time.After(rollEvery):
		}
	}
	return nil
}

// byAge returns which generations of backends, of which the last is the newest, are ready, end
// and are gone.
func byAge[T any](generations []T) (ready, ending, gone []T) {
	ends := max(0, len(generations)-readyFor)
	goes := max(0, ends-endingFor)
	return generations[ends:], generations[goes:ends], generations[:goes]
}

// rollouts are the times at which backends were removed.
type rollouts struct {
	over chan struct{} // closed when there are no more

	mu    sync.Mutex
	times []time.Time
}

func (r *rollouts) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, time.Now())
}

// within returns how many there were in a time.
func (r *rollouts) within(from, to time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.times {
		if !t.Before(from) && t.Before(to) {
			n++
		}
	}
	return n
}

// goOn says whether there are more to come.
func (r *rollouts) goOn() bool {
	select {
	case <-r.over:
		return false
	default:
		return true
	}
}
