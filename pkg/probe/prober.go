package probe

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
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

// Config is what a prober needs.
type Config struct {
	Failures int            // in a row that make a backend bad, at least 1
	Allowed  []netip.Prefix // addresses that may be asked; nil for all that Guard allows
	// MayCarry says whether backends outside may be asked in the way of clients, CarryPort to which port of UDP
	// packets are carried; 0: as IP in IP.
	MayCarry  bool
	CarryPort uint16
	// Notify is told verdicts, from many goroutines.
	Notify func(context.Context, Verdict)
	// Problems is told everything that is wrong with what Services ask for, whenever
	// that changes.
	Problems func([]lb.Problem)
}

// Prober asks backends, each at its interval.
type Prober struct {
	cfg           Config
	wake          chan struct{}
	leastInterval time.Duration           // of a target
	refuse        func(netip.Addr) string // as the guard does; tests listen on loopback
	ask           func(context.Context, target, time.Duration) error

	mu     sync.Mutex
	ready  bool // the node's addresses are known
	guard  Guard
	budget budget
	nodes  map[string][]netip.Addr // addresses of Nodes
	asked  map[lb.ServiceName]asked
	serves map[lb.ServiceName][]netip.Addr // addresses of Services
	jobs   map[target]*job
	bad    map[lb.AddrPort]map[target]bool // what of a backend is bad now
	failed map[target]int                  // how often in a row
}

// New returns a prober.
func New(cfg Config) *Prober {
	p := &Prober{
		cfg: cfg, wake: make(chan struct{}, 1), leastInterval: time.Second, guard: Guard{allowed: cfg.Allowed, nodes: map[netip.Addr]int{}}, nodes: map[string][]netip.Addr{}, ask: cfg.ask,
		asked: map[lb.ServiceName]asked{}, serves: map[lb.ServiceName][]netip.Addr{}, bad: map[lb.AddrPort]map[target]bool{}, failed: map[target]int{},
	}
	p.refuse = func(addr netip.Addr) string { return p.guard.refuse(addr) }
	return p
}

// SetFrontends says what a Service is now, nil for gone. It does not wait.
func (p *Prober) SetFrontends(name lb.ServiceName, frontends []lb.Frontend) {
	probe, backends := lb.Probed(frontends)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves[name] = nil
	for _, f := range frontends {
		p.serves[name] = append(p.serves[name], f.Addr)
	}
	if len(frontends) == 0 {
		delete(p.serves, name)
	}
	before := len(p.asked)
	delete(p.asked, name)
	if len(backends) > 0 {
		p.asked[name] = asked{probe, backends, lb.ProbedWays(frontends), lb.Outside(frontends)}
	}
	if before > 0 || len(backends) > 0 {
		p.changed()
	}
}

// SetNode says which addresses the node has. Nothing is asked before. It does not wait.
func (p *Prober) SetNode(addresses map[netip.Addr]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guard.node = maps.Clone(addresses)
	p.ready = true
	p.changed()
}

// SetNodeAddresses says which addresses some Nodes have, nil for a Node that is gone. It
// does not wait.
func (p *Prober) SetNodeAddresses(nodes map[string][]netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, addresses := range nodes {
		p.guard.count(p.nodes[name], -1)
		p.guard.count(addresses, 1)
		if p.nodes[name] = addresses; addresses == nil {
			delete(p.nodes, name)
		}
	}
	if len(nodes) > 0 {
		p.changed()
	}
}

// SetServiceCIDRs says which prefixes belong to Services. It does not wait.
func (p *Prober) SetServiceCIDRs(prefixes []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guard.cidrs = slices.Clone(prefixes)
	p.changed()
}

// changed has Run look again.
func (p *Prober) changed() {
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
	var said []lb.Problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		jobs, well, problems := p.replan()
		p.tellAll(ctx, well)
		if !slices.Equal(said, problems) {
			p.cfg.Problems(problems)
			said = problems
		}
		for t, stop := range running {
			if jobs[t] == nil {
				stop()
				delete(running, t)
			}
		}
		for t := range jobs {
			if running[t] == nil {
				each, stop := context.WithCancel(ctx)
				running[t] = stop
				all.Go(func() { defer stop(); p.watch(each, t) })
			}
		}
	}
}

// replan puts what Services ask for now in force. Backends that a target is no longer
// asked for are well as far as it is concerned.
func (p *Prober) replan() (jobs map[target]*job, well []Verdict, problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guard.service = map[netip.Addr]struct{}{}
	if len(p.asked) > 0 {
		for _, addresses := range p.serves {
			for _, a := range addresses {
				p.guard.service[a] = struct{}{}
			}
		}
	}
	before := p.jobs
	p.jobs, problems = p.plan()
	maps.DeleteFunc(p.failed, func(t target, _ int) bool { return p.jobs[t] == nil })
	for t, j := range before {
		for b := range j.backends {
			if now := p.jobs[t]; (now == nil || !now.backends[b]) && p.bad[b][t] && p.clear(b, t) {
				well = append(well, Verdict{Backend: b})
			}
		}
	}
	return maps.Clone(p.jobs), well, problems
}

// clear notes that a target says nothing bad of a backend, and whether then nothing
// does. The lock is held.
func (p *Prober) clear(b lb.AddrPort, t target) bool {
	delete(p.bad[b], t)
	if len(p.bad[b]) > 0 {
		return false
	}
	delete(p.bad, b)
	return true
}

// interval returns how often a target is asked.
func (p *Prober) interval(t target) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j := p.jobs[t]; j != nil {
		return j.interval
	}
	return time.Hour // it ends
}

// wait returns once a target may be asked within the budget, false if that is never.
func (p *Prober) wait(ctx context.Context, t target) bool {
	p.mu.Lock()
	j := p.jobs[t]
	if j == nil {
		p.mu.Unlock()
		return false
	}
	limiter := p.budget.of(j.namespaces)
	p.mu.Unlock()
	return wait(ctx, limiter)
}

// watch asks one target until its context ends, first at some time within the
// interval, so that not all are asked at once.
func (p *Prober) watch(ctx context.Context, t target) {
	interval := p.interval(t)
	timer := time.NewTimer(rand.N(interval))
	defer timer.Stop()
	known, last := false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !p.wait(ctx, t) {
			return
		}
		gap := time.Since(last)
		last = time.Now()
		interval = p.interval(t)
		timer.Reset(interval)
		err := p.ask(ctx, t, interval)
		if ctx.Err() != nil {
			return
		}
		failed := p.note(t, err)
		if failed < p.cfg.Failures && (failed > 0 || known) {
			continue
		}
		known = failed == 0
		p.tellAll(ctx, p.judge(t, err, forIntervals*max(interval, gap)))
	}
}

// judge returns the verdicts that follow from what a target has answered. A backend
// that is asked in many ways is well when all of them say so.
func (p *Prober) judge(t target, err error, holds time.Duration) (verdicts []Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.jobs[t]
	if j == nil {
		return nil
	}
	cutOff := j.outside && p.isCutOff(p.jobs)
	for b := range j.backends {
		switch {
		case err == nil:
			if !p.clear(b, t) {
				continue
			}
		case p.bad[b][t]: // it is said again
		case cutOff:
			continue
		case p.bad[b] == nil:
			p.bad[b] = map[target]bool{t: true}
		default:
			p.bad[b][t] = true
		}
		verdicts = append(verdicts, Verdict{b, err, holds})
	}
	return verdicts
}

func (p *Prober) tellAll(ctx context.Context, verdicts []Verdict) {
	for _, v := range verdicts {
		p.cfg.Notify(ctx, v)
	}
}
