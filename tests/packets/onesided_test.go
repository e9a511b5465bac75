package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestConnectionsThatWereResetMakeRoom has a client that ends each connection by a reset.
func TestConnectionsThatWereResetMakeRoom(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 100 * flowWays })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) {
			r.tell(t, story{tell: connectionsThatWereResetMakeRoom}, cast{b, r, lb.TCP})
		})
	}
}

// connectionsThatWereResetMakeRoom has far more of them than there are ways, some seconds
// after each other, beside one that is silent and goes on.
func connectionsThatWereResetMakeRoom(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	silent := c.establish(t, at(c.client, 1999), vip, backend)
	for i := range uint16(2000) {
		if i%50 == 0 {
			c.age(t, 6)
		}
		p := c.establish(t, at(c.client, 2000+i), vip, backend).with("R")
		c.becomes(t, "the client resets it", in, uplink, p, p.to(p.src, backend))
	}
	c.becomes(t, "the silent one goes on", in, uplink, silent, silent.to(silent.src, backend))
}
