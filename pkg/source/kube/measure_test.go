package kube

import (
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// counted counts requests.
type counted struct {
	mu        sync.Mutex
	requests  map[string]int
	throttled int
	longest   time.Duration
}

func (c *counted) Requested(method, host, code string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[method+" "+host+" "+code]++
}

func (c *counted) Throttled(_, host string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throttled++
	c.longest = max(c.longest, took)
}

func (c *counted) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[what]
}

func TestEveryRequestIsTold(t *testing.T) {
	a, gone := mustServe(t), mustServe(t)
	gone.stop()
	a.with(func() { a.listsOnly = true; a.refusals["servicecidrs"] = 404 })
	c := &counted{requests: map[string]int{}}
	s := mustNew(t, a, func(cfg *Config) {
		cfg.Requests, cfg.QPS, cfg.Burst = c, 20, 1
		cfg.Servers = []string{"http://" + gone.addr}
		cfg.ServersFile = ""
	})
	s.conn.kept.answer("http", a.addr)
	r := mustStart(t, a, s)
	r.until("node node-a ")
	eventually(t, "an answer", func() bool { return c.count("GET "+a.addr+" 200") >= 3 })
	eventually(t, "a refusal", func() bool { return c.count("GET "+a.addr+" 404") >= 2 })
	eventually(t, "an error", func() bool { return c.count("GET "+gone.addr+" <error>") >= 1 })
	eventually(t, "a turn", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.throttled > 0 })
}

func TestHowLongARequestWaitsIsTold(t *testing.T) {
	c := &counted{requests: map[string]int{}}
	p := &patient{flowcontrol.NewTokenBucketRateLimiter(20, 1), "192.0.2.1:6443", c}
	for range 2 {
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if c.throttled != 2 || c.longest < 20*time.Millisecond {
		t.Errorf("%d requests waited, the longest %v; want 2, and 50 ms", c.throttled, c.longest)
	}
}
