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
}

func targetOf(backend lb.AddrPort, p lb.Probe) target {
	port := backend.Port
	if p.Port != 0 {
		port = p.Port
	}
	return target{p.Kind, netip.AddrPortFrom(backend.Addr, port), p.Path}
}

// job is for whom a target is asked, and how often.
type job struct {
	interval   time.Duration
	backends   map[lb.AddrPort]bool
	namespaces map[string]bool
}

// asked is what a Service asks for.
type asked struct {
	probe    lb.Probe
	backends []lb.AddrPort
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
			jobs[t] = jobs[t].with(name, b, max(p.asked[name].probe.Interval, p.leastInterval))
		}
		if refused != "" {
			problems = append(problems, problem(name, refused, "take an endpoint that may be asked, leave the annotation out, or ask the operator about --probes"))
		}
	}
	p.budget.plan(jobs)
	for _, name := range names {
		if p.budget.exceeded(name.Namespace) {
			problems = append(problems, problem(name,
				fmt.Sprintf("asks less often than it should: the probes of namespace %s are %.3g requests per second, and may be %.3g", name.Namespace, p.budget.wanted[name.Namespace], p.budget.share),
				"write a longer headgate.dev/probe-interval, or fewer endpoints"))
		}
	}
	return jobs, problems
}

func problem(name lb.ServiceName, reason, remedy string) lb.Problem {
	return lb.Problem{Object: "Service " + name.String(), Field: "metadata.annotations[headgate.dev/probe]", Reason: reason, Remedy: remedy}
}

// with returns a job that is also for a backend of a Service.
func (j *job) with(name lb.ServiceName, b lb.AddrPort, interval time.Duration) *job {
	if j == nil {
		j = &job{interval: interval, backends: map[lb.AddrPort]bool{}, namespaces: map[string]bool{}}
	}
	j.interval = min(j.interval, interval)
	j.backends[b] = true
	j.namespaces[name.Namespace] = true
	return j
}
