package kube

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// herd is many agents that watch one server, as those of a cluster do, with the patience that
// they have there.
type herd struct {
	api    *api
	known  []atomic.Int64 // Services, by agent
	agents int
}

func mustHerd(t *testing.T, a *api, agents int) *herd {
	h := &herd{api: a, agents: agents, known: make([]atomic.Int64, agents)}
	for i := range agents {
		s := mustNew(t, a, func(c *Config) { c.Node = fmt.Sprint("node-", i) })
		s.backoff = defaultBackoff()
		seen := map[lb.ServiceName]bool{}
		mustRun(t, s, func(u lb.Update) {
			for name := range u.Services {
				seen[name] = true
			}
			h.known[i].Store(int64(len(seen)))
		})
	}
	return h
}

// await returns when all agents know so many Services.
func (h *herd) await(services int64) {
	h.api.tb.Helper()
	eventually(h.api.tb, fmt.Sprintf("%d Services to all agents", services), func() bool {
		for i := range h.known {
			if h.known[i].Load() != services {
				return false
			}
		}
		return true
	})
}

// pictures counts how often all Services were asked for.
func (h *herd) pictures() int { return h.api.count("stream services") + h.api.count("list services") }

// A server that comes back meets agents that ask for what they have missed, not all of them
// in one moment, and for nothing else.
func TestAHerdGoesOnWhereTheServerEnded(t *testing.T) {
	const agents = 200
	a := mustServe(t)
	for i := range 20 {
		a.put(service(fmt.Sprint("web-", i), 80), endpoints(fmt.Sprint("web-", i), fmt.Sprint("web-", i), "10.0.0.1"))
	}
	h := mustHerd(t, a, agents)
	h.await(20)
	// A watch that ends within a second without an event is asked for anew from the beginning.
	a.put(service("news", 80))
	h.await(21)
	if got := h.pictures(); got != agents {
		t.Errorf("%d agents asked %d times for all Services", agents, got)
	}
	a.stop()
	a.put(service("late", 80))
	a.with(func() { a.arrived = nil })
	a.start()
	h.await(22)
	if got := h.pictures(); got != agents {
		t.Errorf("%d agents asked %d times for all Services once the server was back", agents, got-agents)
	}
	var arrived []time.Time
	a.with(func() { arrived = slices.Clone(a.arrived["watch services"]) })
	if len(arrived) < agents {
		t.Fatalf("%d agents asked %d times for changes", agents, len(arrived))
	}
	// They wait for 0.8 to 1.6 s.
	if took := arrived[agents-1].Sub(arrived[0]); took < 80*time.Millisecond {
		t.Errorf("all came within %s", took)
	}
}

// What an agent has missed can be too long ago: then it asks once for everything.
func TestAHerdAsksOnceForWhatIsForgotten(t *testing.T) {
	const agents = 50
	a := mustServe(t)
	a.put(service("web", 80))
	h := mustHerd(t, a, agents)
	h.await(1)
	a.put(service("news", 80))
	h.await(2)
	a.stop()
	a.put(service("late", 80))
	a.forget()
	a.start()
	h.await(3)
	if got := h.pictures(); got != 2*agents {
		t.Errorf("%d agents asked %d times for all Services once changes were forgotten", agents, got-agents)
	}
}
