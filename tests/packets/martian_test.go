package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// martianStories are told by TestPackets.
var martianStories = []story{
	{"Sources that nobody can answer begin no flow", sourcesThatNobodyCanAnswerBeginNoFlow},
	{"Nobody is asked for at the unspecified address", nobodyIsAskedForAtTheUnspecifiedAddress},
	{"What has no hop left says nothing about a backend", whatHasNoHopLeftHasNoVote},
	{"A frontend is no client", aFrontendIsNoClient},
	{"Any other source is a client", anyOtherSourceIsAClient},
}

// noSources are addresses that the stack takes from nobody outside.
func (b book) noSources() (out []netip.Addr) {
	texts := []string{"::", "ff02::1", "ff05::1:3", "ff0e::7"}
	if b.client.Is4() {
		texts = []string{"0.0.0.0", "0.1.2.3", "0.255.255.255", "224.0.0.1", "239.255.255.255", "255.255.255.255"}
	}
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return append(out, b.node, b.tunnel)
}

// beginsNothing says that packets of all kinds between two ends are left alone by the
// programs, and leave nothing behind.
func (c cast) beginsNothing(t *testing.T, what string, p packet) {
	t.Helper()
	for _, flags := range []string{"S", "A", "R"} {
		c.untouched(t, what, in, uplink, p.with(flags))
		c.untouched(t, what+" from a pod", podIn, podEnd, p.with(flags))
	}
	c.wantCounts(t, map[string]uint64{})
	if n := c.flows(t); n > 0 {
		t.Fatalf("%s leaves %d tuples", what, n)
	}
}

// setEverywhere makes a Service with a port at every kind of address.
func (c cast) setEverywhere(t *testing.T) (frontends []netip.AddrPort) {
	t.Helper()
	backend := at(c.local, 8080)
	c.set(t, "web",
		c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend),
		c.frontend(lb.ClusterIP, at(c.cluster, 80), backend),
		c.frontend(lb.NodePort, at(unspecified(c.client), 30080), backend))
	return []netip.AddrPort{at(c.vip, 80), at(c.cluster, 80), at(c.node, 30080)}
}

func sourcesThatNobodyCanAnswerBeginNoFlow(t *testing.T, c cast) {
	for _, to := range c.setEverywhere(t) {
		for _, from := range c.noSources() {
			c.beginsNothing(t, from.String(), c.packet(at(from, 40000), to, 10))
		}
	}
}

func nobodyIsAskedForAtTheUnspecifiedAddress(t *testing.T, c cast) {
	c.setEverywhere(t)
	c.beginsNothing(t, "a packet for it", c.packet(at(c.client, 40000), at(unspecified(c.client), 30080), 10))
}

// whatHasNoHopLeftHasNoVote is balanced as any packet, so that the stack's answer, time
// exceeded, is about the packet that the client has sent. That nothing comes back from
// the backend is not the backend's failure.
func whatHasNoHopLeftHasNoVote(t *testing.T, c cast) {
	for i, to := range c.setEverywhere(t) {
		p := c.packet(at(c.client, uint16(40000+i)), to, 0)
		p.ttl = 1
		there := p.to(p.src, at(c.local, 8080))
		for range 3 {
			c.fails(t, "a packet on its last hop", 0, func() { c.becomes(t, "on its last hop", in, uplink, p, there) })
			c.age(t, 1)
		}
		c.forget(t)
	}
}

// anyOtherSourceIsAClient is about what networks use though it was not meant for them.
func anyOtherSourceIsAClient(t *testing.T, c cast) {
	texts := []string{"fe80::7", "fc00::7", "64:ff9b::c633:6407"}
	if c.client.Is4() {
		texts = []string{"1.0.0.0", "223.255.255.255", "240.0.0.1", "255.255.255.254", "169.254.7.7", "100.64.0.7"}
	}
	c.setEverywhere(t)
	for _, text := range texts {
		p := c.packet(at(netip.MustParseAddr(text), 40000), at(c.vip, 80), 10)
		c.becomes(t, text, in, uplink, p, p.to(p.src, at(c.local, 8080)))
	}
}

// aFrontendIsNoClient of datagrams: an answer to it would be a question to its Service.
func aFrontendIsNoClient(t *testing.T, c cast) {
	frontends := c.setEverywhere(t)
	backend, foreign := at(c.local, 8080), at(neighbour(c.vip), 80) // which no other story has: filters keep it
	c.set(t, "other", c.frontend(lb.ExternalIP, foreign, backend))
	for _, to := range frontends {
		for _, from := range frontends[:2] {
			p := c.packet(from, to, 10)
			if c.protocol != lb.UDP {
				c.becomes(t, "a connection from a frontend", in, uplink, p, p.to(p.src, backend))
				c.forget(t)
			} else {
				c.refused(t, "a datagram from a frontend", in, uplink, p)
			}
		}
		p := c.packet(foreign, to, 10)
		c.becomes(t, "from the external IP of another Service", in, uplink, p, p.to(p.src, backend))
		p = c.packet(at(c.cluster, 81), to, 10)
		c.becomes(t, "from another port", in, uplink, p, p.to(p.src, backend))
		c.forget(t)
	}
	if c.protocol == lb.UDP {
		c.refused(t, "from the external IP of the Service itself", in, uplink, c.packet(foreign, foreign, 10))
		c.wantCounts(t, map[string]uint64{"drop martian": 7, "drop martian of web": 6, "drop martian of other": 1, "flow_made": 6})
	}
}
