package packets

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestFlowsOutliveAnUpgrade replaces maps and programs, with flows from before,
// and with others that begin while it is on its way.
func TestFlowsOutliveAnUpgrade(t *testing.T) {
	for name, flows := range map[string]uint32{"more room": 1 << 16, "less room": 1 << 14} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.tell(t, story{tell: func(t *testing.T, c cast) { c.upgrade(t, flows) }}, cast{v4, r, lb.TCP})
		})
	}
	t.Run("from maps without hints", func(t *testing.T) {
		r := newRig(t)
		r.tell(t, story{tell: func(t *testing.T, c cast) {
			c.upgrade(t, uint32(c.table.room()), "address_filter", "flow_filter", "stored_sockets")
		}}, cast{v4, r, lb.TCP})
	})
}

// upgrade replaces maps and programs, by others with room for so many flows. The
// maps that are named were not there before.
func (c cast) upgrade(t *testing.T, flows uint32, without ...string) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
	before := c.establish(t, at(c.client, 40000), vip, local)
	cfg := c.cfg
	cfg.Flows = flows
	c.dp.Close()
	for _, name := range without {
		must(t, os.Remove(filepath.Join(cfg.Root, "maps", name)))
	}
	dp, err := datapath.Open(cfg)
	must(t, err)
	t.Cleanup(dp.Close)
	c.dp = dp
	meanwhile := c.establish(t, at(c.client, 40001), vip, local)
	far := c.packet(at(c.client, 40002), at(c.vip2, 80), 0)
	c.becomes(t, "one to another node begins", in, uplink, far, far.to(far.src, remote))
	left := c.comesOut(t, "and leaves", out, tunnel, far.to(far.src, remote))

	must(t, dp.Attach())
	c.open(t)
	if got := uint32(c.table.room()); got < flows || got >= flows+flowWays {
		t.Fatalf("there is room for %d flows, want %d or some more", got, flows)
	}
	for _, p := range []packet{before, meanwhile} {
		c.becomes(t, "the client goes on", in, uplink, p.with("A"), p.with("A").to(p.src, local))
		a := p.to(p.src, local).answer("A", nil)
		c.becomes(t, "so does the backend", out, uplink, a, a.to(vip, p.src))
	}
	a := left.answer("SA", nil)
	c.becomes(t, "the answer from the other node", in, tunnel, a, a.to(remote, far.src))
	c.becomes(t, "what goes there", out, tunnel, far.to(far.src, remote).with("A"), left.with("A"))
	c.isReset(t, "what is lost is lost now", in, uplink, c.packet(at(c.client, 50000), vip, 0).with("A"))
}

// TestNothingIsResetDuringAnUpgrade has a client that nobody knows yet.
func TestNothingIsResetDuringAnUpgrade(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 0).with("A")
		c.settle(t, false)
		c.refused(t, "while flows come along", in, uplink, p)
		c.settle(t, true)
		c.isReset(t, "when they have", in, uplink, p)
	}}, cast{v4, r, lb.TCP})
}
