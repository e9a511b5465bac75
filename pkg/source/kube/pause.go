package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// pauses are the times that reflectors wait before they try again. All of them
// end when one has reached the server, else everybody would wait for the one
// that happens to wait longest.
type pauses struct {
	mu  sync.Mutex
	end chan struct{} // closed when the pauses that there are now are to end
}

func newPauses() *pauses { return &pauses{end: make(chan struct{})} }

// cut ends all pauses.
func (p *pauses) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.end)
	p.end = make(chan struct{})
}

// in returns a clock whose pauses end with the context too: a reflector waits up
// to a minute without looking.
func (p *pauses) in(ctx context.Context) clock.Clock { return pauseClock{pauses: p, ctx: ctx} }

// pauseClock is the real time except in what it waits for.
type pauseClock struct {
	clock.RealClock
	*pauses
	ctx context.Context // of everything that has this clock
}

// After returns a channel that has an element after a while.
func (c pauseClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	out := make(chan time.Time, 1)
	go func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-end:
		case <-c.ctx.Done():
		}
		out <- time.Now()
	}()
	return out
}
