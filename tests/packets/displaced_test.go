package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestWhatIsWithinAConnectionFindsItsBackend takes the original direction of connections away, as if it had made room: the
// reply direction names the backend.
func TestWhatIsWithinAConnectionFindsItsBackend(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: loseTheOriginalDirection}, cast{b, r, protocol})
			})
		}
	}
}

func loseTheOriginalDirection(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, ports(c.local, 20)...))
	for i := range uint16(20) {
		p := c.packet(at(c.client, 40000+i), vip, 3)
		first := c.comesOut(t, "it begins", in, uplink, p)
		a := first.answer("SA", nil)
		c.becomes(t, "the answer", out, uplink, a, a.to(vip, p.src))
		c.drop(t, in, p)
		c.becomes(t, "it goes on", in, uplink, p.with("A"), first.with("A"))
	}
}

// TestOnlyAnInitBeginsAnAssociation has packets of associations that nobody knows, such as those by a second address of a
// client: with a backend that is not theirs they would end what goes on elsewhere. Netfilter drops them, too.
func TestOnlyAnInitBeginsAnAssociation(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		r.tell(t, story{tell: func(t *testing.T, c cast) {
			vip, backend := at(c.vip, 80), at(c.remote, 8080)
			c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
			p := c.packet(at(c.client, 40000), vip, 3)
			c.refused(t, "a heartbeat", in, uplink, p.with("A"))
			c.wantCounts(t, map[string]uint64{"drop no_flow": 1, "drop no_flow of web": 1})
			c.becomes(t, "an INIT", in, uplink, p, p.to(p.src, backend))
			c.comesOut(t, "it leaves", out, tunnel, p.to(p.src, backend))
			c.age(t, 200)
			c.becomes(t, "a heartbeat after a long pause", in, uplink, p.with("A"), p.with("A").to(p.src, backend))
			c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.remote2, 8080)))
			c.refused(t, "its backend has left", in, uplink, p.with("A"))
			c.becomes(t, "another INIT", in, uplink, p, p.to(p.src, at(c.remote2, 8080)))
		}}, cast{b, r, lb.SCTP})
	}
}

// TestDisplacedDatagramsFindTheirBackend fills a table with flows of datagrams that both sides have confirmed, until
// connections take ways of them. Where that was the original direction the reply direction names the backend.
func TestDisplacedDatagramsFindTheirBackend(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 80 * flowWays })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: displaceDatagrams}, cast{b, r, lb.UDP}) })
	}
}

func displaceDatagrams(t *testing.T, c cast) {
	const flows, connections = 250, 50
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, ports(c.local, 20)...))
	ask := func(i uint16) packet { return c.packet(at(c.client, 30000+i), vip, 3) }
	var sent []packet
	for i := range uint16(flows) {
		first := c.comesOut(t, "a question", in, uplink, ask(i))
		a := first.answer("", nil)
		c.becomes(t, "the answer", out, uplink, a, a.to(vip, first.src))
		sent = append(sent, first)
	}
	c.age(t, 3)
	for i := range uint16(flows) {
		c.becomes(t, "the next question", in, uplink, ask(i), sent[i])
	}
	c.age(t, 3)
	for _, first := range sent { // what was silent for longest makes room first
		a := first.answer("", nil)
		c.becomes(t, "the next answer", out, uplink, a, a.to(vip, first.src))
	}
	tcp := cast{c.book, c.rig, lb.TCP}
	tcp.set(t, "connections", tcp.frontend(lb.LoadBalancerIP, at(c.vip2, 80), at(c.local2, 8080)))
	for i := range uint16(connections) {
		tcp.establish(t, at(c.other, 30000+i), at(c.vip2, 80), at(c.local2, 8080))
	}
	for _, w := range c.table.all(t) {
		if w.key.protocol == lb.TCP {
			c.table.remove(t, w) // there is room again
		}
	}
	displaced := 0
	for i, first := range sent {
		p, keys := ask(uint16(i)), c.table.keys(t)
		if keys[key{in, p.src, p.dst, lb.UDP}] || !keys[key{out, first.dst, p.src, lb.UDP}] {
			continue
		}
		displaced++
		c.becomes(t, "a question whose flow has made room", in, uplink, p, first)
	}
	if displaced < 10 {
		t.Errorf("%d original directions have made room: nothing is tested", displaced)
	}
}
