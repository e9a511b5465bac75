package packets

import (
	"net"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// TestTheNodeGetsItsAnswers has the node, or a pod with its address, speak to others from the number of a
// NodePort.
func TestTheNodeGetsItsAnswers(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			c := cast{b, r, p}
			t.Run(b.family()+" "+p.String(), func(t *testing.T) { r.tell(t, story{tell: theNodeGetsItsAnswers}, c) })
			if p != lb.SCTP {
				t.Run(b.family()+" "+p.String()+" tracked", func(t *testing.T) { r.tell(t, story{tell: answersThatTheKernelTracks}, c) })
				t.Run(b.family()+" "+p.String()+" socket", func(t *testing.T) { r.tell(t, story{tell: answersToAConnectedSocket}, c) })
			}
		}
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+p.String()+" ends", func(t *testing.T) { r.tell(t, story{tell: aClientComesAfterTheNode}, cast{b, r, p}) })
		}
		t.Run(b.family()+" in vain", func(t *testing.T) { r.tell(t, story{tell: whatWasSentInVain}, cast{b, r, lb.UDP}) })
		t.Run(b.family()+" server", func(t *testing.T) { r.tell(t, story{tell: aServerTakesNoNodePort}, cast{b, r, lb.UDP}) })
	}
}

// outside is an address of no other story.
func (c cast) outside() netip.Addr {
	return map[bool]netip.Addr{true: netip.MustParseAddr("198.51.100.77"), false: netip.MustParseAddr("2001:db8:c::77")}[c.client.Is4()]
}

func theNodeGetsItsAnswers(t *testing.T, c cast) {
	own, outside, backend := at(c.node, 30077), at(c.outside(), 9000), at(c.local, 8080)
	second, external := at(c.node.Next(), own.Port()), at(c.tunnel, 77)
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), backend), c.frontend(lb.ExternalIP, external, backend))
	c.apply(t, []plan.Op{plan.PutAddress{Addr: second.Addr(), Kind: plan.NodeAddress}}) // no first address of a device
	defer c.apply(t, []plan.Op{plan.DeleteAddress{Addr: second.Addr()}})
	for _, by := range []struct {
		device string
		from   netip.AddrPort
	}{{uplink, own}, {uplink, second}, {tunnel, external}} {
		device, from := by.device, by.from
		p := c.packet(from, outside, 3)
		c.untouched(t, "the node asks", out, device, p)
		c.untouched(t, "and is answered", in, device, p.answer("SA", nil))
		c.untouched(t, "it goes on", out, device, p.with("A"))
		c.untouched(t, "both ways", in, device, p.with("A").answer("A", []byte("x")))
		if n := c.flows(t); n != 2 {
			t.Errorf("there are %d directions of flows, want 2", n)
		}
		c.forget(t)
	}
	client := c.packet(at(outside.Addr(), 9001), own, 3)
	c.becomes(t, "another client comes", in, uplink, client, client.to(client.src, backend))
	same := c.packet(outside, own, 3)
	c.becomes(t, "a client comes from where the node asks next", in, uplink, same, same.to(outside, backend))
	if c.protocol == lb.SCTP { // its ports stay
		return
	}
	p := c.packet(own, outside, 3)
	moved := c.comesOut(t, "the node asks by another port", out, uplink, p)
	if moved.src == own || moved.src.Addr() != own.Addr() || moved.dst != outside {
		t.Errorf("it leaves as %s to %s", moved.src, moved.dst)
	}
	a := moved.answer("SA", nil)
	c.becomes(t, "and is answered", in, uplink, a, a.to(outside, own))
	c.becomes(t, "the client goes on", in, uplink, same.with("A"), same.with("A").to(outside, backend))
}

// aClientComesAfterTheNode by the same ends: at once over TCP, after a pause of both over UDP and SCTP.
func aClientComesAfterTheNode(t *testing.T, c cast) {
	own, outside, backend := at(c.node, 30177), at(c.outside(), 9000), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), backend))
	p, client := c.packet(own, outside, 3), c.packet(outside, own, 3)
	c.untouched(t, "the node asks", out, uplink, p)
	if c.protocol != lb.TCP {
		c.untouched(t, "and is answered", in, uplink, client)
		for range 2 {
			c.age(t, 170)
			c.untouched(t, "the node asks again", out, uplink, p)
		}
		c.untouched(t, "it is answered late", in, uplink, client)
		for range 2 {
			c.age(t, 170)
			c.untouched(t, "it is answered again", in, uplink, client)
		}
		c.age(t, 200)
	}
	c.becomes(t, "a client comes", in, uplink, client, client.to(outside, backend))
	a := client.to(outside, backend).answer("SA", nil)
	c.becomes(t, "and is answered", out, uplink, a, a.to(own, outside))
	if n := c.flows(t); n != 2 {
		t.Errorf("there are %d directions of flows, want 2", n)
	}
}

// answersThatTheKernelTracks are older than the NodePort.
func answersThatTheKernelTracks(t *testing.T, c cast) {
	own, outside := at(c.node, 30078), at(c.outside(), 9000)
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), at(c.local, 8080)))
	c.tracked(t, at(c.local2, 5555), outside, own)
	c.untouched(t, "a pod is answered", in, uplink, c.packet(outside, own, 3).with("A"))
	p := c.packet(at(outside.Addr(), 9001), own, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, at(c.local, 8080)))
}

// whatWasSentInVain are datagrams for a port that becomes a NodePort.
func whatWasSentInVain(t *testing.T, c cast) {
	own, outside := at(c.node, 30079), at(c.outside(), 9000)
	c.tracked(t, outside, own, outside)
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), at(c.local, 8080)))
	p := c.packet(outside, own, 3)
	c.becomes(t, "a client comes again", in, uplink, p, p.to(outside, at(c.local, 8080)))
}

// answersToAConnectedSocket are for one of the node that is older than the NodePort.
func answersToAConnectedSocket(t *testing.T, c cast) {
	own, outside := at(c.node, 31077), at(c.outside(), 9000)
	c.connect(t, own, outside)
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), at(c.local, 8080)))
	c.untouched(t, "the socket is answered", in, uplink, c.packet(outside, own, 3).with("A"))
	p := c.packet(at(outside.Addr(), 9001), own, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, at(c.local, 8080)))
}

// aServerTakesNoNodePort listens at the number of a NodePort.
func aServerTakesNoNodePort(t *testing.T, c cast) {
	own := at(c.node, 31078)
	c.holdAddresses(t, own.Addr())
	s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(own))
	must(t, err)
	defer s.Close()
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), own.Port()), at(c.local, 8080)))
	p := c.packet(at(c.outside(), 9000), own, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, at(c.local, 8080)))
}

// TestAnAddressOfTheNodeIsNoClient has packets come from an address of the node on which NodePorts do not answer.
func TestAnAddressOfTheNodeIsNoClient(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+p.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) {
					own := c.outside()
					c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)), c.frontend(lb.NodePort, at(unspecified(c.client), 30080), at(c.local, 8080)))
					c.apply(t, []plan.Op{plan.PutAddress{Addr: own, Kind: plan.OwnAddress}})
					defer c.apply(t, []plan.Op{plan.DeleteAddress{Addr: own}})
					c.untouched(t, "it says that it is the node", in, uplink, c.packet(at(own, 20000), at(c.vip, 80), 3))
					c.untouched(t, "NodePorts do not answer", in, uplink, c.packet(at(c.client, 20000), at(own, 30080), 3))
					if n := c.flows(t); n > 0 {
						t.Errorf("there are %d directions of flows", n)
					}
				}}, cast{b, r, p})
			})
		}
	}
}
