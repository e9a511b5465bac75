package probe

import (
	"maps"
	"net/netip"
)

// A node that gets no answer of any backend outside is cut off, as far as it can tell, and what it finds out then says
// nothing of backends. Were they avoided for it, connections that come in here once it is back, and began
// at another edge (docs/edge.md), would go to other backends than they are at. So each stays what it was taken for until
// one answers, and then failures count anew.

// note notes what a target has answered, and returns how often it has failed in a row by now.
func (p *Prober) note(t target, err error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	j, was := p.jobs[t], p.isCutOff(p.jobs)
	switch {
	case j == nil:
		return 0
	case err != nil:
		p.failed[t]++
	case was && j.outside:
		maps.DeleteFunc(p.failed, func(other target, _ int) bool { return !p.isBad(other) })
		fallthrough
	default:
		delete(p.failed, t)
	}
	if p.isCutOff(p.jobs) != was {
		p.changed() // it is a problem, or no more
	}
	return p.failed[t]
}

// isBad says whether a backend has been said to be bad for what a target answers.
func (p *Prober) isBad(t target) bool {
	for _, targets := range p.bad {
		if targets[t] {
			return true
		}
	}
	return false
}

// isCutOff says whether of several backends outside none has answered last. The lock is held.
func (p *Prober) isCutOff(jobs map[target]*job) bool {
	hosts := map[netip.Addr]bool{}
	for t, j := range jobs {
		if !j.outside {
			continue
		}
		if p.failed[t] == 0 {
			return false
		}
		hosts[t.at.Addr()] = true
	}
	return len(hosts) > 1
}
