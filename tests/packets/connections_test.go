package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// wantConnections compares how many connections began: of all Service ports, and with all backends.
func (r *rig) wantConnections(t *testing.T, what string, want uint64) {
	t.Helper()
	i, err := datapath.Inspect(r.root)
	must(t, err)
	defer i.Close()
	var services, backends uint64
	for id := range r.told.Services {
		n, err := i.Connections(id)
		must(t, err)
		services += n
	}
	for _, b := range i.Backends() {
		backends += b.Connections
	}
	if services != want || backends != want {
		t.Errorf("%s: %d connections of Services, %d with backends, want %d", what, services, backends, want)
	}
}

// A connection of TCP counts when both sides have confirmed it, so that forged SYNs count nothing; a
// flow of datagrams counts with its first one.
func TestAFlowCountsOnce(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: beginsFlows}, cast{b, r, protocol})
			})
		}
	}
}

func beginsFlows(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 4000), at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.hashed(lb.Maglev, backend)) // so that a connection without a flow goes on
	c.wantConnections(t, "before", 0)
	first := c.packet(client, vip, 0)
	sent := first.to(client, backend)
	leaves := sent.to(at(c.node, 4000), backend)
	began := map[lb.Protocol]uint64{lb.TCP: 0, lb.UDP: 1, lb.SCTP: 1}[c.protocol]
	c.becomes(t, "the first packet", in, uplink, first, sent)
	c.becomes(t, "the same again", in, uplink, first, sent)
	c.becomes(t, "on its way out", out, uplink, sent, leaves)
	c.wantConnections(t, "the first packet", began)
	c.becomes(t, "a guess", in, uplink, first.with("A"), sent.with("A"))
	c.wantConnections(t, "before an answer", began)
	c.becomes(t, "the answer", in, uplink, leaves.answer("SA", nil), sent.answer("SA", nil))
	c.becomes(t, "the answer on its way out", out, uplink, sent.answer("SA", nil), first.answer("SA", nil))
	c.wantConnections(t, "an answer", began)
	for range 3 {
		c.becomes(t, "what follows", in, uplink, first.with("A"), sent.with("A"))
		c.wantConnections(t, "what follows", 1)
	}
	c.becomes(t, "of another client", in, uplink, c.packet(at(c.other, 4000), vip, 0), c.packet(at(c.other, 4000), backend, 0))
	c.wantConnections(t, "a first packet of another client", 1+began)
	if c.protocol == lb.TCP {
		c.becomes(t, "a reset", in, uplink, first.with("RA"), sent.with("RA"))
		c.becomes(t, "it was forged", in, uplink, first.with("A"), sent.with("A"))
		c.wantConnections(t, "a connection that goes on after a forged reset", 1)
		c.drop(t, in, first)
		c.becomes(t, "within a connection whose way is lost", in, uplink, first.with("A"), sent.with("A"))
		c.forget(t)
		c.becomes(t, "within a connection that is not known", in, uplink, first.with("A"), sent.with("A"))
		c.wantConnections(t, "connections that go on", 1)
	}
	c.set(t, "web")
	c.apply(t, c.planner.Sweep())
	c.set(t, "shop", c.hashed(lb.Maglev, backend))
	c.wantConnections(t, "IDs that others had", 0)
}
