package probe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// target is what is asked, once however many Services name it.
type target struct {
	kind lb.ProbeKind
	at   netip.AddrPort
	path string // of HTTP
	// frontend is whom a backend outside is asked for, in the way of clients; zero: it is asked at its own address.
	frontend netip.AddrPort
}

func targetOf(backend lb.AddrPort, p lb.Probe) target {
	port := backend.Port
	if p.Port != 0 {
		port = p.Port
	}
	return target{kind: p.Kind, at: netip.AddrPortFrom(backend.Addr, port), path: p.Path}
}

// targetThrough is a backend outside, asked in the way of clients.
func targetThrough(w lb.Way) target {
	return target{
		kind: lb.TCPProbe, at: netip.AddrPortFrom(w.Backend.Addr, w.Backend.Port),
		frontend: netip.AddrPortFrom(w.Frontend.Addr, w.Frontend.Port),
	}
}

// job is for whom a target is asked, and how often.
type job struct {
	interval   time.Duration
	backends   map[lb.AddrPort]bool
	namespaces map[string]bool
	outside    bool // a backend is
}

// asked is what a Service asks for.
type asked struct {
	probe    lb.Probe
	backends []lb.AddrPort
	ways     []lb.Way
	outside  map[lb.AddrPort]bool
}

// plan returns what is to be asked, and what is wrong with what Services ask for. The
// lock is held.
func (p *Prober) plan() (map[target]*job, []lb.Problem) {
	jobs := map[target]*job{}
	if !p.ready {
		return jobs, nil
	}
	var problems []lb.Problem
	names := slices.SortedFunc(maps.Keys(p.asked), lb.ServiceName.Compare)
	for _, name := range names {
		refused := ""
		for _, b := range p.asked[name].backends {
			t := targetOf(b, p.asked[name].probe)
			if why := p.refuse(t.at.Addr()); why != "" {
				refused = fmt.Sprintf("does not ask the endpoint %s: %s", b.Addr, why)
				continue
			}
			jobs[t] = jobs[t].with(name, b, max(p.asked[name].probe.Interval, p.leastInterval), p.asked[name].outside[b])
		}
		if len(p.asked[name].ways) > 0 && !p.cfg.MayCarry {
			problems = append(problems, problem(name, "asks backends outside at their own addresses only: this agent may open no raw sockets", "give it the capability NET_RAW, see docs/edge.md"))
		}
		p.planWays(name, jobs)
		if refused != "" {
			problems = append(problems, problem(name, refused, "take an endpoint that may be asked, leave the annotation out, or ask the operator about --probes"))
		}
	}
	p.budget.plan(jobs)
	cutOff := p.isCutOff(jobs)
	for _, name := range names {
		if cutOff && len(p.asked[name].outside) > 0 {
			problems = append(problems, problem(name, "cannot tell how its backends outside are: no backend outside of any Service answers, so that this node may be cut off", "look at the network of this node first, then at the backends"))
		}
		if p.budget.exceeded(name.Namespace) {
			problems = append(problems, problem(name,
				fmt.Sprintf("asks less often than it should: the probes of namespace %s are %.3g requests per second, and may be %.3g", name.Namespace, p.budget.wanted[name.Namespace], p.budget.share),
				"write a longer headgate.dev/probe-interval, or fewer endpoints"))
		}
	}
	return jobs, problems
}

// planWays adds the ways to backends outside that are to be asked. Where the frontend is an address of this node
// the kernel would not take an answer from it.
func (p *Prober) planWays(name lb.ServiceName, jobs map[target]*job) {
	for _, w := range p.asked[name].ways {
		if p.cfg.MayCarry && p.refuse(w.Backend.Addr) == "" && !p.guard.node[w.Frontend.Addr] {
			t := targetThrough(w)
			jobs[t] = jobs[t].with(name, w.Backend, max(p.asked[name].probe.Interval, p.leastInterval), true)
		}
	}
}

func problem(name lb.ServiceName, reason, remedy string) lb.Problem {
	return lb.Problem{Object: "Service " + name.String(), Field: "metadata.annotations[headgate.dev/probe]", Reason: reason, Remedy: remedy}
}

// with returns a job that is also for a backend of a Service, which is outside or not.
func (j *job) with(name lb.ServiceName, b lb.AddrPort, interval time.Duration, outside bool) *job {
	if j == nil {
		j = &job{interval: interval, backends: map[lb.AddrPort]bool{}, namespaces: map[string]bool{}}
	}
	j.interval, j.outside = min(j.interval, interval), j.outside || outside
	j.backends[b] = true
	j.namespaces[name.Namespace] = true
	return j
}
