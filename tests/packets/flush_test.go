package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestFlushedFlowsAreForgotten flushes flows of a Service, and those of a backend on another
// node, and nothing else.
func TestFlushedFlowsAreForgotten(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: flowsAreFlushed}, cast{v4, r, lb.TCP})
	r.tell(t, story{tell: flowsAreFlushed}, cast{v6, r, lb.TCP})
}

func flowsAreFlushed(t *testing.T, c cast) {
	vip, vip2, local, remote := at(c.vip, 80), at(c.vip2, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, vip2, remote))
	held := c.establish(t, at(c.client, 1), vip, local)
	c.establish(t, at(c.client, 2), vip, local)
	far := c.packet(at(c.client, 3), vip2, 0)
	c.becomes(t, "one goes to another node", in, uplink, far, far.to(far.src, remote))
	c.comesOut(t, "and leaves for it", out, uplink, far.to(far.src, remote))

	i, err := datapath.Inspect(c.root)
	must(t, err)
	defer i.Close()
	ids := map[string]uint32{}
	must(t, i.Flows(func(f datapath.Flow) error {
		service, err := i.Service(f.Service)
		ids[service.Name] = f.Service
		return err
	}))
	var near, elsewhere uint32 // IDs
	for id, b := range i.Backends() {
		switch b.At.Addr {
		case c.local:
			near = id
		case c.remote:
			elsewhere = id
		}
	}
	flush := func(what string, want, left int, is func(service, backend uint32) bool) {
		t.Helper()
		n, err := i.FlushFlows(is)
		must(t, err)
		if got := flowsOf(t, i); n != want || got != left {
			t.Errorf("%s: %d directions flushed, %d left, want %d and %d", what, n, got, want, left)
		}
	}
	flush("nothing", 0, 8, func(uint32, uint32) bool { return false })
	if n := i.Backend(near).InFlight; n != 2 {
		t.Errorf("%d in flight before, want 2", n)
	}
	flush("a Service", 4, 4, func(service, _ uint32) bool { return service == ids["web"] })
	if n := i.Backend(near).InFlight; n != 0 {
		t.Errorf("%d in flight after that, want 0", n)
	}
	c.isReset(t, "its connection goes on", in, uplink, held.with("A"))
	flush("a backend elsewhere", 4, 0, func(_, backend uint32) bool { return backend == elsewhere })
}
