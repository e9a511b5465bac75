package packets

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// endings are how connections end, each packet by who sends it.
var endings = [][]struct {
	by    hook // in: the client, out: the backend
	flags string
}{
	{{in, "FA"}, {out, "FA"}, {in, "A"}},
	{{out, "FA"}, {in, "A"}, {in, "FA"}, {out, "A"}},
	{{in, "R"}},
	{{out, "RA"}},
}

// passes runs packets of a connection through the programs, and looks only at whether
// they pass.
func (c cast) passes(t *testing.T, h hook, p packet) {
	t.Helper()
	if verdict, _ := c.run(t, h, uplink, p.frame(t)); verdict == drop {
		t.Fatalf("%s drops %s", h, describe(p))
	}
}

// comes begins a connection, or has the backend refuse it.
func (c cast) comes(t *testing.T, client, vip, backend netip.AddrPort, refused bool) {
	t.Helper()
	p := c.packet(client, vip, 0)
	c.passes(t, in, p)
	if refused {
		c.passes(t, out, p.to(client, backend).answer("RA", nil))
		return
	}
	c.passes(t, out, p.to(client, backend).answer("SA", nil))
	c.passes(t, in, p.with("A"))
}

// goes ends a connection in one of the ways.
func (c cast) goes(t *testing.T, client, vip, backend netip.AddrPort, way int) {
	t.Helper()
	p := c.packet(client, vip, 0)
	for _, step := range endings[way%len(endings)] {
		if step.by == in {
			c.passes(t, in, p.with(step.flags))
		} else {
			c.passes(t, out, p.to(client, backend).answer(step.flags, nil))
		}
	}
}

// replace replaces the agent, and with another number of flows all programs. What is
// done meanwhile is done with the new ones loaded, and the former in force.
func (c cast) replace(t *testing.T, flows uint32, meanwhile func()) {
	t.Helper()
	c.dp.Close()
	c.cfg.Flows = flows
	dp, err := datapath.Open(c.cfg)
	must(t, err)
	t.Cleanup(dp.Close)
	c.dp = dp
	meanwhile()
	must(t, dp.Attach())
	c.open(t)
}

// TestNoDriftOverManyFlows has a fifth of $HEADGATE_CONNECTIONS connections come and
// go as packets, in all ways in which they can, while agents and programs are
// replaced.
func TestNoDriftOverManyFlows(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		total := int(number(t, "HEADGATE_CONNECTIONS", 50_000)) / 5
		vip, backend := at(c.vip, 80), at(c.local, 8080)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
		const held = 100
		for port := range uint16(held) {
			c.comes(t, at(c.other, 2000+port), vip, backend, false)
		}
		made := 0
		come := func(n int) {
			for range n {
				client := at(c.client, 1024+uint16(made%60_000))
				refused := made%8 == 7
				if c.comes(t, client, vip, backend, refused); !refused {
					c.goes(t, client, vip, backend, made)
				}
				made++
			}
		}
		for round := range 6 {
			come(total / 6)
			c.wantInFlight(t, "connections have come and gone", held)
			flows := c.cfg.Flows
			if round%2 == 1 {
				flows ^= 1<<15 | 1<<16
			}
			c.replace(t, flows, func() { come(50) })
			c.wantInFlight(t, "an agent has come", held)
		}
		t.Logf("%d connections", made)
		for port := range uint16(held) {
			c.goes(t, at(c.other, 2000+port), vip, backend, int(port))
		}
		c.wantInFlight(t, "all have ended", 0)
	}}, cast{v4, r, lb.TCP})
}

// TestNoDriftOnTwoCPUs has connections to one backend come and go on two CPUs at the same
// time: first each CPU has its own, then both see the reset of the same.
func TestNoDriftOnTwoCPUs(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		const held = 1000 // so that what counts too little is seen, too
		vip, backend := at(c.vip, 80), at(c.local, 8080)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
		var connections []packet
		for port := range uint16(2 * held) {
			connections = append(connections, c.establish(t, at(c.other, 2000+port), vip, backend))
		}
		comeAndGo := func(client netip.Addr) func() error {
			p := c.packet(at(client, 40000), vip, 0)
			hooks := []hook{in, out, in, in}
			frames := [][]byte{p.frame(t), p.to(p.src, backend).answer("SA", nil).frame(t), p.with("A").frame(t), p.with("R").frame(t)}
			return func() error {
				for i := range number(t, "HEADGATE_CONNECTIONS", 50_000) {
					if got, err := r.try(hooks[i%4], uplink, frames[i%4]); err != nil || got.verdict != pass {
						return fmt.Errorf("packet %d: verdict %d, %w", i, got.verdict, err)
					}
				}
				return nil
			}
		}
		must(t, <-onCPUs(t, comeAndGo(c.client), comeAndGo(c.router)))
		c.wantInFlight(t, "connections have come and gone", 2*held)
		for i := range connections {
			connections[i].flags = "R"
		}
		c.atOnce(t, in, uplink, connections[held:])
		c.wantInFlight(t, "half of them were reset", held)
	}}, cast{v4, r, lb.TCP})
}
