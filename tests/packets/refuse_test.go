package packets

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// refuseStories are told by TestPackets.
var refuseStories = []story{
	{"A Service without endpoints refuses", aServiceWithoutEndpointsRefuses},
	{"A refused client reaches an endpoint that comes", aRefusedClientReachesAnEndpointThatComes},
	{"A port that a ClusterIP does not serve is refused", aPortThatAClusterIPDoesNotServeIsRefused},
	{"An address of no Service is refused in the Service CIDR", anAddressOfNoServiceIsRefusedInTheServiceCIDR},
	{"Policy Local keeps to the node", policyLocalKeepsToTheNode},
	{"Policy Local without local endpoint drops and counts", policyLocalWithoutLocalEndpointDropsAndCounts},
	{"Datagrams move on from a backend that is gone", datagramsMoveOnFromABackendThatIsGone},
	{"Datagrams end with their Service", datagramsEndWithTheirService},
	{"An idle flow of datagrams is a new one", anIdleFlowOfDatagramsIsANewOne},
	{"A connection outlives draining and is reset then", aConnectionOutlivesDrainingAndIsResetThen},
	{"A flow that was noted just now loses its backend at once", aFlowLosesItsBackendAtOnce},
	{"A port that comes again is a new choice", aPortThatComesAgainIsANewChoice},
	{"A port that comes again after a check is a new choice", aPortThatComesAgainAfterACheckIsANewChoice},
	{"A client outside comes back to its backend", aClientOutsideComesBackToItsBackend},
}

// nobody is where the datapath sends what nobody takes: the kernel refuses it.
const nobody = uint16(0)

// wantRefusal says that a packet is refused: with TCP by a reset at once. A
// datagram goes to where nobody listens, and the kernel's answer looks as if the
// frontend had refused it.
func (c cast) wantRefusal(t *testing.T, p packet) {
	t.Helper()
	if c.protocol == lb.TCP {
		c.isReset(t, "a packet that nobody takes", in, uplink, p)
		c.isReset(t, "and once more", in, uplink, p)
		return
	}
	node := at(c.node, nobody)
	c.becomes(t, "a packet that nobody takes", in, uplink, p, p.to(p.src, node))
	c.becomes(t, "and once more", in, uplink, p, p.to(p.src, node))
	unreachable := c.portUnreachable(t, c.node, p.to(p.src, node))
	want := c.portUnreachable(t, p.dst.Addr(), p)
	c.framesBecome(t, "the ICMP error", out, uplink, unreachable.frame(t), want.frame(t))
}

func aServiceWithoutEndpointsRefuses(t *testing.T, c cast) {
	c.set(t, "empty", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)), c.frontend(lb.ClusterIP, at(c.cluster, 80)))
	c.wantRefusal(t, c.packet(at(c.client, 40000), at(c.vip, 80), 4))
	c.wantRefusal(t, c.packet(at(c.client, 40001), at(c.cluster, 80), 4))
	got := c.counters(t)
	if n := got["drop no_endpoint of empty"] - c.counted["drop no_endpoint of empty"]; n != 4 {
		t.Errorf("%d refusals are counted for the Service, want 4", n)
	}
}

func aRefusedClientReachesAnEndpointThatComes(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip))
	p := c.packet(at(c.client, 40000), vip, 4)
	c.wantRefusal(t, p)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local, 8080)))
	c.becomes(t, "the next one", in, uplink, p, p.to(p.src, at(c.local, 8080)))
}

func aPortThatAClusterIPDoesNotServeIsRefused(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.ClusterIP, at(c.cluster, 80), at(c.local, 8080)))
	c.wantRefusal(t, c.packet(at(c.client, 40000), at(c.cluster, 81), 4))
	if n := c.counters(t)["drop no_service_port"] - c.counted["drop no_service_port"]; n != 2 {
		t.Errorf("%d refusals are counted, want 2", n)
	}
}

func anAddressOfNoServiceIsRefusedInTheServiceCIDR(t *testing.T, c cast) {
	c.setCIDRs(t, v4.services, v6.services)
	defer c.setCIDRs(t)
	c.wantRefusal(t, c.packet(at(c.client, 40000), at(c.services.Addr().Next(), 80), 4))
	if n := c.counters(t)["drop no_service"] - c.counted["drop no_service"]; n != 2 {
		t.Errorf("%d refusals are counted, want 2", n)
	}
}

func policyLocalKeepsToTheNode(t *testing.T, c cast) {
	f := c.frontend(lb.NodePort, at(unspecified(c.client), 30080), at(c.local, 8080), at(c.remote, 8080))
	f.Views[lb.External].Backends = f.Members[:1]
	c.set(t, "web", f)
	for port := range uint16(20) {
		p := c.packet(at(c.client, 40000+port), at(c.node, 30080), 4)
		c.becomes(t, "the local endpoint takes it", in, uplink, p, p.to(p.src, at(c.local, 8080)))
	}
}

func policyLocalWithoutLocalEndpointDropsAndCounts(t *testing.T, c cast) {
	f := c.frontend(lb.NodePort, at(unspecified(c.client), 30080), at(c.remote, 8080))
	f.Views[lb.External] = lb.View{NoLocal: true}
	c.set(t, "web", f)
	c.refused(t, "no local endpoint", in, uplink, c.packet(at(c.client, 40000), at(c.node, 30080), 4))
	c.wantCounts(t, map[string]uint64{"drop no_local_endpoint": 1, "drop no_local_endpoint of web": 1})
	if n := c.flows(t); n > 0 {
		t.Errorf("%d tuples are kept", n)
	}
}

func datagramsMoveOnFromABackendThatIsGone(t *testing.T, c cast) {
	if c.protocol != lb.UDP {
		return
	}
	vip := at(c.vip, 53)
	for _, gone := range []netip.AddrPort{at(c.local, 5353), at(c.remote, 5353)} {
		c.forget(t)
		c.set(t, "dns", c.frontend(lb.LoadBalancerIP, vip, gone))
		p := c.packet(at(c.client, 40000), vip, 4)
		c.becomes(t, "the first goes to the only backend", in, uplink, p, p.to(p.src, gone))
		c.set(t, "dns", c.frontend(lb.LoadBalancerIP, vip, at(c.local2, 5353)))
		c.becomes(t, "the next to the new one", in, uplink, p, p.to(p.src, at(c.local2, 5353)))
		late := p.to(p.src, gone).answer("", nil)
		c.becomes(t, "a late answer still comes from the frontend", out, uplink, late, late.to(vip, p.src))
		c.set(t, "dns", c.frontend(lb.LoadBalancerIP, vip))
		c.becomes(t, "with no backend it is refused", in, uplink, p, p.to(p.src, at(c.node, nobody)))
	}
}

func datagramsEndWithTheirService(t *testing.T, c cast) {
	if c.protocol != lb.UDP {
		return
	}
	c.set(t, "dns", c.frontend(lb.LoadBalancerIP, at(c.vip, 53), at(c.local, 5353)))
	p := c.packet(at(c.client, 40000), at(c.vip, 53), 4)
	c.becomes(t, "the first packet", in, uplink, p, p.to(p.src, at(c.local, 5353)))
	c.set(t, "dns")
	c.untouched(t, "one for a Service that is gone", in, uplink, p)
}

func anIdleFlowOfDatagramsIsANewOne(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	backends := []netip.AddrPort{at(c.local, 1), at(c.local, 2), at(c.local, 3), at(c.local, 4)}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backends...))
	p := c.packet(at(c.client, 40000), vip, 4)
	first := c.comesOut(t, "the first", in, uplink, p)
	c.age(t, 100)
	for range 20 {
		c.becomes(t, "a pause is no end", in, uplink, p.with("A"), first.with("A"))
	}
	chosen := map[netip.AddrPort]bool{}
	for range 40 {
		c.age(t, 200)
		chosen[c.comesOut(t, "after a long pause", in, uplink, p.with("A")).dst] = true
	}
	if c.protocol == lb.UDP && len(chosen) < 2 || c.protocol == lb.TCP && len(chosen) != 1 {
		t.Errorf("after long pauses it went to %v", chosen)
	}
}

func aConnectionOutlivesDrainingAndIsResetThen(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	vip, gone, now := at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, gone))
	p := c.packet(at(c.client, 40000), vip, 4)
	c.becomes(t, "the connection begins", in, uplink, p, p.to(p.src, gone))
	c.drain(t, vip, gone, now)
	c.becomes(t, "a draining backend keeps it, even its SYN", in, uplink, p, p.to(p.src, gone))
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, now))
	c.isReset(t, "the client of one that is gone is told", in, uplink, p.with("A"))
	c.isReset(t, "and so is the backend, if it is there", out, uplink, p.to(p.src, gone).answer("A", nil))
	c.isReset(t, "as often as they ask", in, uplink, p.with("FA"))
	c.refused(t, "a reset gets no answer", in, uplink, p.with("R"))
	c.becomes(t, "a new one from the same port goes to whom there is", in, uplink, p, p.to(p.src, now))
	a := p.to(p.src, now).answer("SA", nil)
	c.becomes(t, "and back", out, uplink, a, a.to(vip, p.src))
}

// aFlowLosesItsBackendAtOnce has established flows, of which a packet asks for the backend once
// a second, or after a Service has lost one.
func aFlowLosesItsBackendAtOnce(t *testing.T, c cast) {
	vip, gone, now := at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	for i, left := range [][]lb.Frontend{{c.frontend(lb.LoadBalancerIP, vip, now)}, nil} {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, gone))
		time.Sleep(25 * time.Millisecond) // by the clock of flows, which ticks, what was lost before is older
		p := c.establish(t, at(c.client, 40000+uint16(i)), vip, gone).with("A")
		c.set(t, "other", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), gone))
		c.becomes(t, "another Service has come", in, uplink, p, p.to(p.src, gone))
		c.set(t, "web", left...)
		switch {
		case c.protocol == lb.TCP:
			c.isReset(t, "its backend has left the Service", in, uplink, p)
		case c.protocol == lb.SCTP:
			c.refused(t, "its backend has left the Service", in, uplink, p)
		case left == nil:
			c.untouched(t, "the Service has gone", in, uplink, p)
		default:
			c.becomes(t, "its backend has left the Service", in, uplink, p, p.to(p.src, now))
		}
	}
}

func aPortThatComesAgainIsANewChoice(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	vip, gone, now := at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	for i, end := range []struct {
		client, backend string // the flags of what each says last, if it says anything
		isProved        bool
	}{
		{"FA", "FA", true}, {"FA", "RA", true}, {"FA", "A", false},
		{"RA", "", true}, {"", "RA", true}, {"R", "", false}, {"", "R", false},
	} {
		when := fmt.Sprintf("%q of the client and %q of the backend", end.client, end.backend)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, gone))
		p := c.establish(t, at(c.client, 40000+uint16(i)), vip, gone)
		c.drain(t, vip, gone, now)
		if end.client != "" {
			c.becomes(t, "the client says "+end.client, in, uplink, p.with(end.client), p.with(end.client).to(p.src, gone))
		}
		a := p.to(p.src, gone).answer(end.backend, nil)
		if end.backend != "" {
			c.becomes(t, "the backend says "+end.backend, out, uplink, a, a.to(vip, p.src))
		}
		to := map[bool]netip.AddrPort{true: now, false: gone}[end.isProved]
		c.becomes(t, "the port comes again after "+when, in, uplink, p, p.to(p.src, to))
		b := p.to(p.src, to).answer("SA", nil)
		c.becomes(t, "and back, after "+when, out, uplink, b, b.to(vip, p.src))
		c.becomes(t, "what comes again from the one before, after "+when, out, uplink, a, a.to(vip, p.src))
	}
}

// A check of health answers the backend's SYN with a reset.
func aPortThatComesAgainAfterACheckIsANewChoice(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	vip, gone, now := at(c.vip, 80), at(c.local, 8080), at(c.local2, 8080)
	for i, last := range []string{"RA", "R", ""} {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, gone))
		p := c.packet(at(c.client, 40000+uint16(i)), vip, 0)
		c.becomes(t, "a SYN", in, uplink, p, p.to(p.src, gone))
		a := p.to(p.src, gone).answer("SA", nil)
		c.becomes(t, "is answered", out, uplink, a, a.to(vip, p.src))
		if last != "" {
			c.becomes(t, "and reset", in, uplink, p.with(last), p.with(last).to(p.src, gone))
		}
		c.becomes(t, "the port comes again while its backend takes new ones", in, uplink, p, p.to(p.src, gone))
		if last != "" {
			c.becomes(t, "and is reset again", in, uplink, p.with(last), p.with(last).to(p.src, gone))
		}
		c.drain(t, vip, gone, now)
		to := map[bool]netip.AddrPort{true: gone, false: now}[last == ""]
		c.becomes(t, "the port comes again after "+last, in, uplink, p, p.to(p.src, to))
	}
}

// drain has a Service choose one backend, and keep another one for connections that have it.
func (c cast) drain(t *testing.T, vip, draining, now netip.AddrPort) {
	t.Helper()
	f := c.frontend(lb.LoadBalancerIP, vip, draining, now)
	f.Views[lb.External].Backends, f.Views[lb.Internal].Backends = f.Members[1:], f.Members[1:]
	c.set(t, "web", f)
}

func aClientOutsideComesBackToItsBackend(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	f := c.frontend(lb.LoadBalancerIP, vip, at(c.local, 1), at(c.local, 2), at(c.local, 3), at(c.remote, 4))
	f.AffinityTimeout = 3600
	c.set(t, "web", f)
	chosen := map[netip.AddrPort]bool{}
	for _, client := range []netip.Addr{c.client, c.other, c.router, c.local, c.remote, c.local2, c.remote2} {
		first := c.comesOut(t, "the first connection", in, uplink, c.packet(at(client, 40000), vip, 0))
		chosen[first.dst] = true
		for port := range uint16(15) {
			p := c.packet(at(client, 41000+port), vip, 0)
			c.becomes(t, "another goes to the same backend", in, uplink, p, p.to(p.src, first.dst))
		}
	}
	if len(chosen) < 2 {
		t.Errorf("all clients go to %v", chosen)
	}
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return v4Unspecified
	}
	return v6Unspecified
}
