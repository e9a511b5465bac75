package packets

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// flowStories are told by TestPackets.
var flowStories = []story{
	{"A flow to a local backend keeps its client", aFlowToALocalBackendKeepsItsClient},
	{"A flow to a remote backend comes back here", aFlowToARemoteBackendComesBackHere},
	{"Ports of the node itself are left to it", portsOfTheNodeItselfAreLeftToIt},
	{"One client port reaches one backend by two frontends", oneClientPortReachesOneBackendByTwoFrontends},
	{"Two clients with one port share a remote backend", twoClientsWithOnePortShareARemoteBackend},
	{"A port is used again once both sides have ended its connection", portsOfEndedFlowsAreUsedAgain},
	{"A device gives its own address", aDeviceGivesItsOwnAddress},
	{"Every address of the node answers on a NodePort", everyAddressOfTheNodeAnswersOnANodePort},
	{"A ClusterIP answers clients outside", aClusterIPAnswersClientsOutside},
	{"What is no Service is left alone", whatIsNoServiceIsLeftAlone},
}

func aFlowToALocalBackendKeepsItsClient(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 3)
	c.becomes(t, "the first packet goes to the backend", in, uplink, p, p.to(client, backend))
	c.becomes(t, "so does a later one", in, uplink, p.with("A"), p.with("A").to(client, backend))
	answer := p.to(backend, client).with("SA")
	c.becomes(t, "the answer comes from the frontend", out, uplink, answer, answer.to(vip, client))
	c.untouched(t, "on its way the packet is nobody's", out, tunnel, p.to(at(c.other, 1), backend))
	c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 2})
}

func aFlowToARemoteBackendComesBackHere(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 100)
	c.becomes(t, "the first packet goes to the backend", in, uplink, p, p.to(client, backend))
	leaving := c.comesOut(t, "it leaves from the device", out, tunnel, p.to(client, backend))
	if leaving.src.Addr() != c.tunnel || leaving.dst != backend {
		t.Fatalf("it leaves as %s", describe(leaving))
	}
	c.becomes(t, "so does a later one", out, tunnel, p.to(client, backend).with("A"), leaving.with("A"))
	back := leaving.answer("SA", []byte("answer"))
	c.becomes(t, "the answer to the device is one to the client", in, tunnel, back, back.to(backend, client))
	c.becomes(t, "it comes from the frontend", out, uplink, back.to(backend, client), back.to(vip, client))
	c.wantCounts(t, map[string]uint64{"flow_made": 2, "flow_packet": 3})
}

func portsOfTheNodeItselfAreLeftToIt(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for _, port := range []uint16{1024, 32768, 50000, 60999, 65535} {
		p := c.packet(at(c.client, port), vip, 0)
		c.becomes(t, "the first packet goes to the backend", in, uplink, p, p.to(p.src, backend))
		leaving := c.comesOut(t, "it leaves from the device", out, uplink, p.to(p.src, backend))
		if got := leaving.src.Port(); got < snatLow || got > snatHigh {
			t.Errorf("client port %d leaves as %d, where the node's own sockets are", port, got)
		}
	}
}

func oneClientPortReachesOneBackendByTwoFrontends(t *testing.T, c cast) {
	client := at(c.client, 40000)
	for _, backend := range []lb.Frontend{c.frontend(lb.ClusterIP, at(c.vip, 80), at(c.local, 8080)), c.frontend(lb.ClusterIP, at(c.vip, 80), at(c.remote, 8080))} {
		c.forget(t)
		to := at(backend.Members[0].Addr, 8080)
		c.set(t, "one", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), to))
		c.set(t, "two", c.frontend(lb.LoadBalancerIP, at(c.vip2, 81), to))
		one, two := c.packet(client, at(c.vip, 80), 5), c.packet(client, at(c.vip2, 81), 5)
		c.becomes(t, "the first flow keeps the port", in, uplink, one, one.to(client, to))
		moved := c.comesOut(t, "the second gets another", in, uplink, two)
		if moved.src.Addr() != c.client || moved.src.Port() == client.Port() || moved.dst != to {
			t.Fatalf("the second becomes %s", describe(moved))
		}
		c.becomes(t, "and keeps it", in, uplink, two.with("A"), moved.with("A"))
		a := moved.answer("SA", nil)
		c.becomes(t, "the answer to it goes to the client's own port", out, uplink, a, a.to(two.dst, client))
		a = one.to(client, to).answer("SA", nil)
		c.becomes(t, "the answer to the first is as ever", out, uplink, a, a.to(one.dst, client))
	}
}

func twoClientsWithOnePortShareARemoteBackend(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	var left []packet
	clients := []packet{c.packet(at(c.client, 40000), vip, 9), c.packet(at(c.other, 40000), vip, 9)}
	for _, p := range clients {
		c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(p.src, backend))
		left = append(left, c.comesOut(t, "and leaves from the device", out, tunnel, p.to(p.src, backend)))
	}
	if left[0].src == left[1].src {
		t.Fatalf("both leave from %s", left[0].src)
	}
	for i, p := range clients {
		a := left[i].answer("SA", nil)
		c.becomes(t, "each answer goes to its client", in, tunnel, a, a.to(backend, p.src))
	}
}

func portsOfEndedFlowsAreUsedAgain(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	first := c.packet(at(c.client, 40000), vip, 0)
	second := c.packet(at(c.other, 40000), vip, 0)
	begin := func(p packet) packet {
		c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(p.src, backend))
		return c.comesOut(t, "and leaves from the device", out, tunnel, p.to(p.src, backend))
	}
	answer := func(p packet, flags string) {
		a := p.answer(flags, nil)
		c.becomes(t, "the answer comes back", in, tunnel, a, a.to(backend, at(c.client, 40000)))
	}
	talk := func(p packet, answers []string) {
		for _, flags := range answers {
			flags, ofClient := strings.CutPrefix(flags, "client ")
			if ofClient {
				c.becomes(t, "the client ends it", out, tunnel, first.to(first.src, backend).with(flags), p.with(flags))
				continue
			}
			answer(p, flags)
			c.becomes(t, "the client acknowledges", out, tunnel, first.to(first.src, backend).with("A"), p.with("A"))
		}
	}
	for _, end := range []struct {
		name  string
		lives bool // if it is TCP
		flags []string
	}{
		{"nobody answered", false, nil}, {"it is open", true, []string{"SA", "A"}}, {"the backend has closed it", true, []string{"SA", "A", "FA"}},
		{"the backend has reset it", false, []string{"SA", "RA"}}, {"somebody has reset it", true, []string{"SA", "R"}}, {"both have closed it", false, []string{"SA", "A", "FA", "client FA"}},
		{"the client has reset what the backend closed", false, []string{"SA", "A", "FA", "client RA"}},
	} {
		c.forget(t)
		one := begin(first)
		talk(one, end.flags)
		if two := begin(second); two.src == one.src {
			t.Fatalf("%s, not idle: both leave from %s", end.name, one.src)
		}
		c.forget(t)
		one = begin(first)
		talk(one, end.flags)
		c.age(t, 200)
		two := begin(second)
		if ended := c.protocol != lb.TCP || !end.lives; (two.src == one.src) != ended {
			t.Fatalf("%s, idle: the one left from %s, the other leaves from %s", end.name, one.src, two.src)
		}
		if again := begin(first); again.src == two.src {
			t.Fatalf("%s: the first is back, and both leave from %s", end.name, again.src)
		}
	}
}

func aDeviceGivesItsOwnAddress(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for device, own := range map[string]any{uplink: c.node, tunnel: c.tunnel} {
		c.forget(t)
		p := c.packet(at(c.client, 40000), vip, 0)
		c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(p.src, backend))
		if leaving := c.comesOut(t, "and leaves", out, device, p.to(p.src, backend)); leaving.src.Addr() != own {
			t.Errorf("by %s it leaves as %s, want address %s", device, describe(leaving), own)
		}
	}
}

func everyAddressOfTheNodeAnswersOnANodePort(t *testing.T, c cast) {
	everywhere, backend := at(v4Unspecified, 30080), at(c.local, 8080)
	if !c.client.Is4() {
		everywhere = at(v6Unspecified, 30080)
	}
	c.set(t, "web", c.frontend(lb.NodePort, everywhere, backend))
	for _, node := range []packet{c.packet(at(c.client, 40000), at(c.node, 30080), 1), c.packet(at(c.client, 40001), at(c.tunnel, 30080), 1)} {
		c.becomes(t, "an address of the node", in, uplink, node, node.to(node.src, backend))
		a := node.to(node.src, backend).answer("SA", nil)
		c.becomes(t, "the answer", out, uplink, a, a.to(node.dst, node.src))
	}
	c.untouched(t, "an address of somebody else", in, uplink, c.packet(at(c.client, 40000), at(c.other, 30080), 1))
	c.untouched(t, "another port", in, uplink, c.packet(at(c.client, 40000), at(c.node, 30081), 1))
	c.refused(t, "loopback is no address for others", in, uplink, c.packet(at(c.client, 40000), loopback(c.book, 30080), 1))
}

func aClusterIPAnswersClientsOutside(t *testing.T, c cast) {
	client, cluster := at(c.client, 40000), at(c.cluster, 443)
	c.set(t, "api", c.frontend(lb.ClusterIP, cluster, at(c.local, 6443)))
	p := c.packet(client, cluster, 1)
	c.becomes(t, "the port of the Service", in, uplink, p, p.to(client, at(c.local, 6443)))
}

func whatIsNoServiceIsLeftAlone(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	for _, p := range []packet{
		c.packet(at(c.client, 40000), at(c.node, 22), 10),
		c.packet(at(c.client, 40000), at(c.vip, 81), 10),
		c.packet(at(c.client, 40000), at(c.local, 8080), 10),
		c.packet(at(c.vip, 80), at(c.client, 40000), 10),
	} {
		c.untouched(t, "in", in, uplink, p)
		c.untouched(t, "out", out, uplink, p)
	}
	c.wantCounts(t, map[string]uint64{})
	if n := c.flows(t); n > 0 {
		t.Errorf("%d tuples are kept", n)
	}
}
