package packets

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestFlowsAreListed makes one flow of each kind and reads them back.
func TestFlowsAreListed(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: flowsAreListed}, cast{v4, r, lb.TCP})
}

func flowsAreListed(t *testing.T, c cast) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
	c.establish(t, at(c.client, 1), vip, local)
	closing := c.establish(t, at(c.client, 2), vip, local)
	c.becomes(t, "one ends", in, uplink, closing.with("FA"), closing.with("FA").to(closing.src, local))
	begun := c.packet(at(c.client, 3), vip, 0)
	c.becomes(t, "one begins", in, uplink, begun, begun.to(begun.src, local))
	broken := c.packet(at(c.client, 4), at(c.vip2, 80), 0)
	c.becomes(t, "one goes away", in, uplink, broken, broken.to(broken.src, remote))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), local))
	c.isReset(t, "its backend does not stay", in, uplink, broken.with("A"))
	c.age(t, 10)

	i, err := datapath.Inspect(c.root)
	must(t, err)
	defer i.Close()
	states := map[netip.AddrPort]datapath.FlowState{}
	must(t, i.Flows(func(f datapath.Flow) error {
		if seconds := f.Idle.Seconds(); seconds < 9 || seconds > 60 {
			t.Errorf("%+v is idle for %.0f s, want 10", f, seconds)
		}
		if f.Hook != "in" {
			return nil
		}
		states[f.From] = f.State
		if to := map[bool]netip.AddrPort{true: remote, false: local}[f.To.Addr() == c.vip2]; f.NowTo != to || f.NowFrom != f.From || f.Protocol != lb.TCP {
			t.Errorf("%+v goes elsewhere than to %s", f, to)
		}
		return nil
	}))
	want := map[netip.AddrPort]datapath.FlowState{
		at(c.client, 1): datapath.FlowEstablished, at(c.client, 2): datapath.FlowClosing,
		at(c.client, 3): datapath.FlowHalfOpen, at(c.client, 4): datapath.FlowBroken,
	}
	if diff := cmp.Diff(want, states, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if room := i.FlowRoom(); room < c.cfg.Flows || room >= c.cfg.Flows+flowWays {
		t.Errorf("there is room for %d, want %d or some more", room, c.cfg.Flows)
	}
}
