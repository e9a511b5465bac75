package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// podStories are of pods whose packets are balanced at their own devices.
var podStories = []story{
	{"A pod keeps its address wherever the backend is", aPodKeepsItsAddressWhereverTheBackendIs},
	{"A pod is a client on this node", aPodIsAClientOnThisNode},
	{"A pod reaches itself", aPodReachesItself},
	{"A pod reaches itself from the port that it serves", aPodReachesItselfFromThePortThatItServes},
	{"What goes into a pod keeps its client", whatGoesIntoAPodKeepsItsClient},
	{"A pod hears that nobody serves", aPodHearsThatNobodyServes},
	{"Nobody speaks to loopback from elsewhere", nobodySpeaksToLoopbackFromElsewhere},
}

func aPodKeepsItsAddressWhereverTheBackendIs(t *testing.T, c cast) {
	pod, vip := at(c.local, 40000), at(c.cluster, 80)
	for _, backend := range []lb.Frontend{c.frontend(lb.ClusterIP, vip, at(c.local2, 8080)), c.frontend(lb.ClusterIP, vip, at(c.remote, 8080))} {
		c.forget(t)
		to := at(backend.Members[0].Addr, 8080)
		c.set(t, "web", backend)
		p := c.packet(pod, vip, 7)
		c.becomes(t, "the first packet goes to the backend", podIn, podEnd, p, p.to(pod, to))
		c.untouched(t, "it leaves as it is", out, uplink, p.to(pod, to))
		c.untouched(t, "and so it does into another pod", podOut, podEnd, p.to(pod, to))
		answer := p.to(to, pod).with("SA")
		c.untouched(t, "the answer comes in as it is", in, uplink, answer)
		c.becomes(t, "and reaches the pod from the frontend", podOut, podEnd, answer, answer.to(vip, pod))
		c.becomes(t, "a later one goes the same way", podIn, podEnd, p.with("A"), p.with("A").to(pod, to))
	}
}

// Policies for clients on this node are for pods, those for others are not.
func aPodIsAClientOnThisNode(t *testing.T, c cast) {
	vip := at(c.vip, 80)
	f := c.frontend(lb.LoadBalancerIP, vip, at(c.remote, 8080))
	f.Views[lb.External] = lb.View{NoLocal: true}
	c.set(t, "web", f)
	p := c.packet(at(c.local, 40000), vip, 0)
	c.becomes(t, "the pod reaches every endpoint", podIn, podEnd, p, p.to(p.src, at(c.remote, 8080)))
	c.refused(t, "a client elsewhere only local ones", in, uplink, c.packet(at(c.client, 40000), vip, 0))

	f.Views[lb.Internal], f.Views[lb.External] = f.Views[lb.External], c.frontend(lb.ClusterIP, vip, at(c.remote, 8080)).Views[lb.Internal]
	c.set(t, "web", f)
	c.forget(t)
	c.refused(t, "and the other way round", podIn, podEnd, p)
	c.wantCounts(t, map[string]uint64{"flow_made": 1, "drop no_local_endpoint": 2, "drop no_local_endpoint of web": 2})
}

func aPodReachesItself(t *testing.T, c cast) {
	pod, vip, backend := at(c.local, 40000), at(c.cluster, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.ClusterIP, vip, backend))
	c.reachesItself(t, pod, vip, backend, pod)
	want := map[string]uint64{"flow_made": 2, "flow_packet": 4, "flow_established": 2}
	if c.protocol != lb.TCP {
		delete(want, "flow_established") // datagrams confirm nothing so soon
	}
	c.wantCounts(t, want)
}

func aPodReachesItselfFromThePortThatItServes(t *testing.T, c cast) {
	pod, vip := at(c.local, 8080), at(c.cluster, 80)
	c.set(t, "web", c.frontend(lb.ClusterIP, vip, pod))
	p := c.packet(pod, vip, 0)
	turned := c.comesOut(t, "it gets another port", podIn, podEnd, p)
	if turned.src.Port() == pod.Port() || turned.src.Addr() != pod.Addr() || turned.dst != pod {
		t.Fatalf("it becomes %s", describe(turned))
	}
	c.reachesItself(t, pod, vip, pod, turned.src)
}

// reachesItself follows a connection of a pod to itself: round by the node, whose
// address the server sees.
func (c cast) reachesItself(t *testing.T, pod, vip, backend, turned netip.AddrPort) {
	t.Helper()
	p := c.packet(pod, vip, 9)
	c.becomes(t, "it is turned round", podIn, podEnd, p, p.to(turned, backend))
	enters := c.comesOut(t, "it comes from the node", podOut, podEnd, p.to(turned, backend))
	if enters.src.Addr() != c.tunnel || enters.dst != backend {
		t.Fatalf("it comes back as %s", describe(enters))
	}
	answer := enters.answer("SA", []byte("answer"))
	c.becomes(t, "the answer is turned round", podIn, podEnd, answer, answer.to(backend, turned))
	c.becomes(t, "and comes from the frontend", podOut, podEnd, answer.to(backend, turned), answer.to(vip, pod))
	c.becomes(t, "a later packet is turned round", podIn, podEnd, p.with("A"), p.with("A").to(turned, backend))
	c.becomes(t, "and comes from the node", podOut, podEnd, p.to(turned, backend).with("A"), enters.with("A"))
}

func whatGoesIntoAPodKeepsItsClient(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 3)
	c.becomes(t, "the packet goes to the backend", in, uplink, p, p.to(client, backend))
	c.untouched(t, "its client is kept", podOut, podEnd, p.to(client, backend))
	answer := p.to(backend, client).with("SA")
	c.untouched(t, "the pod answers", podIn, podEnd, answer)
	c.becomes(t, "and the answer leaves from the frontend", out, uplink, answer, answer.to(vip, client))
}

func aPodHearsThatNobodyServes(t *testing.T, c cast) {
	vip := at(c.cluster, 80)
	c.set(t, "web", c.frontend(lb.ClusterIP, vip))
	p := c.packet(at(c.local, 40000), vip, 0)
	if c.protocol == lb.TCP {
		c.isReset(t, "the packet is answered at once", podIn, podEnd, p)
		return
	}
	c.becomes(t, "the packet goes where nobody listens", podIn, podEnd, p, p.to(p.src, at(c.tunnel, 0)))
	answer := p.to(at(c.tunnel, 0), p.src).with("RA")
	c.becomes(t, "the refusal comes from the frontend", podOut, podEnd, answer, answer.to(vip, p.src))
}

func nobodySpeaksToLoopbackFromElsewhere(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), 30080), at(c.local, 8080)))
	for _, port := range []uint16{30080, 10250} {
		p := c.packet(at(c.client, 40000), loopback(c.book, port), 0)
		c.refused(t, "from outside", in, uplink, p)
		c.refused(t, "from a pod", podIn, podEnd, p.to(at(c.local, 40000), p.dst))
		c.refused(t, "as if it were loopback", in, uplink, p.to(p.dst, at(c.node, 30080)))
	}
	c.wantCounts(t, map[string]uint64{"drop martian": 6})
}
