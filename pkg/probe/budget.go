package probe

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Requests per second, at most.
const (
	nodeRate      = 100 // of a node, shared by the namespaces that have probes
	namespaceRate = 10
)

// budget limits the requests of namespaces. It is guarded by the prober's lock, but
// for waiting.
type budget struct {
	share    float64 // requests per second of each namespace
	limiters map[string]*rate.Limiter
	wanted   map[string]float64 // requests per second, by namespace
}

// plan sets what namespaces want.
func (b *budget) plan(jobs map[target]*job) {
	b.wanted = map[string]float64{}
	for _, j := range jobs {
		for namespace := range j.namespaces {
			b.wanted[namespace] += float64(time.Second) / float64(j.interval)
		}
	}
	b.share = namespaceRate
	if n := len(b.wanted); n > nodeRate/namespaceRate {
		b.share = nodeRate / float64(n)
	}
	limiters := map[string]*rate.Limiter{}
	for namespace := range b.wanted {
		limiters[namespace] = b.limiters[namespace]
		if limiters[namespace] == nil {
			limiters[namespace] = rate.NewLimiter(0, 1)
		}
		limiters[namespace].SetLimit(rate.Limit(b.share))
	}
	b.limiters = limiters
}

// exceeded says whether a namespace wants more than it gets.
func (b *budget) exceeded(namespace string) bool { return b.wanted[namespace] > b.share }

// of returns the limiter of the namespace that has most left: who names a target that
// others name, too, cannot keep it from being asked.
func (b *budget) of(namespaces map[string]bool) *rate.Limiter {
	var most *rate.Limiter
	for namespace := range namespaces {
		if l := b.limiters[namespace]; l != nil && (most == nil || l.Tokens() > most.Tokens()) {
			most = l
		}
	}
	return most
}

// wait returns once a request may be made, false where the context ended.
func wait(ctx context.Context, l *rate.Limiter) bool {
	return l == nil || l.Wait(ctx) == nil
}
