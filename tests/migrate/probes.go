package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/tests/controlplane"
)

// probe asks for health as a load balancer does, over and over.
type probe struct {
	what string // node and port
	url  string
	over chan struct{}

	mu   sync.Mutex
	gaps []gap
}

// gap is a time without an answer that all is well.
type gap struct {
	from time.Time     // when the first probe without one was sent
	took time.Duration // since the last answer
}

// Probes come so often, and may take so long.
const (
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 2 * time.Second
)

// startProbe asks from a machine until the context ends.
func (w *world) startProbe(ctx context.Context, machine, what, url string) *probe {
	p := &probe{what: what, url: url, over: make(chan struct{})}
	client := http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: controlplane.Dialer(w.namespace(machine))}}
	go func() {
		defer close(p.over)
		last := time.Now()
		var missed time.Time // when the first probe since was sent that failed, the zero time for none
		for ctx.Err() == nil {
			began := time.Now()
			well := false
			if answer, err := client.Get(url); err == nil {
				answer.Body.Close()
				well = answer.StatusCode == http.StatusOK
			}
			if well {
				if !missed.IsZero() {
					p.note(gap{missed, time.Since(last)})
				}
				last, missed = time.Now(), time.Time{}
			} else if ctx.Err() == nil && missed.IsZero() {
				missed = began
			}
			time.Sleep(time.Until(began.Add(probeEvery)))
		}
		if !missed.IsZero() {
			p.note(gap{missed, time.Since(last)})
		}
	}()
	return p
}

func (p *probe) note(g gap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gaps = append(p.gaps, g)
}

// longest returns the longest gap that began in a time.
func (p *probe) longest(from, to time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gaps {
		if !g.from.Before(from) && g.from.Before(to) {
			longest = max(longest, g.took)
		}
	}
	return longest
}
