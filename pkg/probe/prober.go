package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Verdict is what is known of a backend by asking it.
type Verdict struct {
	Backend lb.AddrPort
	// Err says why it is not well, nil if it is.
	Err error
	// For is how long the verdict holds, if nothing else is said before.
	For time.Duration
}

// forIntervals is for how many intervals a bad verdict holds: it is said anew with
// every probe, and must not outlive who says it for long.
const forIntervals = 3

// leastInterval keeps a probe without interval from asking all the time.
const leastInterval = 10 * time.Millisecond

// Prober asks backends, each at its interval.
type Prober struct {
	failures int // in a row that make a backend bad
	tell     func(context.Context, Verdict)
	wake     chan struct{}

	mu     sync.Mutex
	wanted map[lb.ServiceName]map[target]bool
	bad    map[lb.AddrPort]map[target]bool // what of a backend is bad now
}

// target is something to ask. Services that want the same share it.
type target struct {
	backend lb.AddrPort
	probe   lb.Probe
}

// New returns a prober that takes so many failures in a row for bad, and tells
// verdicts to a function, from many goroutines.
func New(failures int, tell func(context.Context, Verdict)) *Prober {
	return &Prober{
		failures: max(failures, 1), tell: tell, wake: make(chan struct{}, 1),
		wanted: map[lb.ServiceName]map[target]bool{}, bad: map[lb.AddrPort]map[target]bool{},
	}
}

// SetFrontends says what a Service is now, nil for gone. It does not wait.
func (p *Prober) SetFrontends(name lb.ServiceName, frontends []lb.Frontend) {
	probe, backends := lb.Probed(frontends)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(backends) == 0 && len(p.wanted[name]) == 0 {
		return
	}
	delete(p.wanted, name)
	if len(backends) > 0 {
		p.wanted[name] = map[target]bool{}
	}
	for _, b := range backends {
		p.wanted[name][target{b, probe}] = true
	}
	select {
	case p.wake <- struct{}{}:
	default: // awake already
	}
}

// Run asks until the context ends.
func (p *Prober) Run(ctx context.Context) {
	running := map[target]context.CancelFunc{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		wanted := p.targets()
		for t, stop := range running {
			if !wanted[t] {
				stop()
				delete(running, t)
			}
		}
		for t := range wanted {
			if running[t] == nil {
				each, stop := context.WithCancel(ctx)
				running[t] = stop
				all.Go(func() { defer stop(); p.watch(ctx, each, t) })
			}
		}
	}
}

// targets returns everything that some Service wants asked.
func (p *Prober) targets() map[target]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[target]bool{}
	for _, targets := range p.wanted {
		for t := range targets {
			out[t] = true
		}
	}
	return out
}

// watch asks one target until nobody wants it any more, first at some time within
// the interval, so that not all are asked at once.
func (p *Prober) watch(all, ctx context.Context, t target) {
	defer p.forget(all, t)
	interval := max(t.probe.Interval, leastInterval)
	timer := time.NewTimer(rand.N(interval))
	defer timer.Stop()
	failed, known := 0, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(interval)
		}
		err := ask(ctx, t.backend, t.probe)
		if ctx.Err() != nil {
			return
		}
		if failed++; err == nil {
			failed = 0
		}
		if failed < p.failures && (failed > 0 || known) {
			continue
		}
		known = failed == 0
		p.say(ctx, t, err)
	}
}

// say tells what a probe has found out. A backend that is asked in many ways is well
// when all of them say so.
func (p *Prober) say(ctx context.Context, t target, err error) {
	p.mu.Lock()
	switch {
	case err == nil:
		delete(p.bad[t.backend], t)
	case p.bad[t.backend] == nil:
		p.bad[t.backend] = map[target]bool{t: true}
	default:
		p.bad[t.backend][t] = true
	}
	others := len(p.bad[t.backend]) > 0
	if !others {
		delete(p.bad, t.backend)
	}
	p.mu.Unlock()
	if err != nil || !others {
		p.tell(ctx, Verdict{t.backend, err, forIntervals * t.probe.Interval})
	}
}

// forget takes back what was said of a backend that nobody wants asked any more,
// unless everything ends: then it holds for its time.
func (p *Prober) forget(all context.Context, t target) {
	p.mu.Lock()
	bad := p.bad[t.backend][t]
	p.mu.Unlock()
	if bad && all.Err() == nil {
		p.say(all, t, nil)
	}
}
