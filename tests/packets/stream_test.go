package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// ports returns so many backends at an address, on consecutive ports.
func ports(addr netip.Addr, n uint16) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, at(addr, 8080+i))
	}
	return all
}

// TestAStreamOfAnswersKeepsTheBackend has clients that are silent for longer than a flow of datagrams may be idle, while
// their servers send. kube-proxy keeps the backend: each packet of either direction renews its conntrack entry.
func TestAStreamOfAnswersKeepsTheBackend(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: streamToSilentClients}, cast{b, r, protocol})
			})
		}
	}
}

func streamToSilentClients(t *testing.T, c cast) {
	const clients, seconds, step = 20, 200, 10
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, ports(c.local, 20)...))
	for i := range uint16(clients) {
		p := c.packet(at(c.client, 40000+i), vip, 3)
		asked := c.comesOut(t, "the question", in, uplink, p)
		answer := asked.answer("", nil)
		for range seconds / step {
			c.becomes(t, "an answer", out, uplink, answer, answer.to(vip, p.src))
			c.age(t, step)
		}
		c.becomes(t, "the last answer", out, uplink, answer, answer.to(vip, p.src))
		c.becomes(t, "the next question", in, uplink, p, asked)
		c.drop(t, in, p)
		c.drop(t, out, answer)
	}
}

// TestSilenceOfBothSidesEndsAFlowOfDatagrams is the other half: with no packet of either side for that long the next one
// begins a new flow.
func TestSilenceOfBothSidesEndsAFlowOfDatagrams(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		const clients = 20
		vip, moved := at(c.vip, 80), 0
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, ports(c.local, 20)...))
		for i := range uint16(clients) {
			p := c.packet(at(c.client, 40000+i), vip, 3)
			asked := c.comesOut(t, "the question", in, uplink, p)
			answer := asked.answer("", nil)
			c.becomes(t, "the answer", out, uplink, answer, answer.to(vip, p.src))
			c.age(t, 200)
			if c.comesOut(t, "the next question", in, uplink, p).dst != asked.dst {
				moved++
			}
		}
		if moved == 0 {
			t.Errorf("all of %d flows keep their backend after 200 s of silence", clients)
		}
	}}, cast{v4, r, lb.UDP})
}
