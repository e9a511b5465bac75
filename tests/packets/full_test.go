package packets

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestATableCanBeFilled has connections begin until five of six ways are taken, while
// another CPU sends packets of those that are open: none is refused for want of room, and
// each goes on, wherever in the table it moves.
func TestATableCanBeFilled(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = filledSets * flowWays })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: fillTheTable}, cast{b, r, lb.TCP}) })
	}
}

const filledSets = 600

func fillTheTable(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := &parallel{cast: c}
	send := func(i int64, flags string) error {
		q := p.packet(at(c.client, uint16(1024+i)), vip, 0).with(flags)
		return p.wants(t, in, q, q.to(q.src, backend))
	}
	answer := func(i int64, flags string) error {
		q := p.packet(vip, at(c.client, uint16(1024+i)), 0).with(flags)
		return p.wants(t, out, q.to(backend, q.dst), q)
	}
	const total = filledSets * flowWays * 5 / 6 / 2
	var open atomic.Int64
	var done atomic.Bool
	must(t, <-onCPUs(t, func() error {
		defer done.Store(true)
		for i := range int64(total) {
			if err := errors.Join(send(i, "S"), answer(i, "SA"), send(i, "A")); err != nil {
				return fmt.Errorf("connection %d of %d: %w", i, total, err)
			}
			open.Store(i + 1)
		}
		return nil
	}, func() error {
		for !done.Load() {
			if n := open.Load(); n > 0 {
				i := rand.Int64N(n)
				if err := errors.Join(send(i, "A"), answer(i, "A")); err != nil {
					return fmt.Errorf("connection %d, with %d open: %w", i, n, err)
				}
			}
		}
		return nil
	}))
	for i := range int64(total) {
		must(t, errors.Join(send(i, "A"), answer(i, "A")))
	}
	if n := c.flows(t); n != 2*total {
		t.Errorf("%d directions are there, want %d", n, 2*total)
	}
}
