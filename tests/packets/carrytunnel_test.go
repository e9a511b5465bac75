package packets

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// claimedPort is the port at which a Service claims the address of a pod.
const claimedPort = 9

// claim has a Service claim an address at a port, and be carried or not.
func (n *fleetNode) claim(t *testing.T, at lb.AddrPort, carried bool) {
	t.Helper()
	view := plan.View{Table: plan.Table{Offset: firstFleetSlot, Size: fleetSlots}, Algorithm: lb.Stable}
	kind := plan.FrontendAddress
	if carried {
		kind |= plan.CarriedAddress
	}
	n.apply(t, []plan.Op{
		plan.PutFrontend{Key: at, Value: plan.Frontend{
			Service: fleetService, Kind: lb.ExternalIP, Members: plan.Table{Offset: fleetMembersAt, Size: 6}, Carried: carried,
			Views: [lb.NumViews]plan.View{lb.Internal: view, lb.External: view},
		}},
		plan.PutAddress{Addr: at.Addr, Kind: kind},
	})
}

// tunnelled are packets between pods that a tunnel of the network of pods has; of some, ports are not known.
func (f *fleet) tunnelled(t *testing.T, p packet) (known, unknown map[string][]byte) {
	t.Helper()
	udp, whole, strange := p, p, p
	udp.protocol, udp.dst = lb.UDP, at(p.dst.Addr(), claimedPort) // the Service has that port of TCP
	whole.payload = make([]byte, 64)
	parts := cut(whole, 70, 40, 2)
	strange.protocol = lb.Protocol(47)
	known = map[string][]byte{"TCP": p.frame(t), "UDP": udp.frame(t)}
	unknown = map[string][]byte{
		"the first fragment": parts[0].frame(t), "the second fragment": parts[1].frame(t),
		"an ICMP error": f.portUnreachable(t, p.src.Addr(), p.to(p.dst, p.src)).frame(t), "another protocol": strange.frame(t),
	}
	behind := p
	if p.is4() {
		behind.options = []byte{1, 1, 1, 1}
	} else {
		behind.headers = []header{{60, make([]byte, 8)}}
	}
	unknown["behind more headers"] = behind.frame(t)
	return known, unknown
}

// tunnelsToAClaimedPod has a Service claim the address of a pod, which a tunnel of IP in IP leads to. The packets of
// the tunnel stay as they are, but for those to the port of the Service if that is carried.
func tunnelsToAClaimedPod(t *testing.T, f *fleet) {
	f.serve(t, 2)
	pod := nodeAddr(110, !f.client.Is4())
	p := f.packet(40000, "S", 10)
	p.dst = at(pod, 8080)
	known, unknown := f.tunnelled(t, p)
	claimed := p.to(p.src, at(pod, claimedPort)).frame(t)
	key := lb.AddrPort{Addr: pod, Port: claimedPort, Protocol: lb.TCP}
	defer func() {
		for _, n := range f.nodes[:2] {
			n.apply(t, []plan.Op{plan.DeleteAddress{Addr: pod}, plan.DeleteFrontend{Key: key}})
		}
	}()
	for _, carried := range []bool{false, true, false} {
		when := map[bool]string{true: ", carried", false: ", not carried"}[carried]
		for _, n := range f.nodes[:2] {
			n.claim(t, key, carried)
		}
		f.ofTunnel(t, "the port of the Service"+when, claimed, carried)
		for what, frame := range known {
			f.ofTunnel(t, what+when, frame, false)
		}
		for what, frame := range unknown {
			f.ofTunnel(t, what+when, frame, carried)
		}
	}
}

// ofTunnel says whether the other node takes a frame as carried. If so, this node does not send the frame as its own.
// Over UDP the proof decides, whatever the frame holds. Pods can send it in neither case.
func (f *fleet) ofTunnel(t *testing.T, what string, frame []byte, taken bool) {
	t.Helper()
	taken = taken || f.udp
	outer := f.outerOf(0, 1, frame, 0, 0)
	received := f.nodes[1].receivedFrom(t, 0)
	verdict, made := f.nodes[1].run(t, in, uplink, outer)
	if got := f.nodes[1].receivedFrom(t, 0) > received; got != taken {
		t.Errorf("%s: it is taken for carried: %v, want %v", what, got, taken)
	}
	if !taken && (verdict != pass || !bytes.Equal(made, outer)) {
		t.Errorf("%s: verdict %d for %s, given %s", what, verdict, dump(made), dump(outer))
	}
	if taken {
		if verdict, _, counted := f.nodes[0].leave(t, byNode, outer, 0); verdict != drop || counted != 1 {
			t.Errorf("%s, by the node: verdict %d, %d counted as forged", what, verdict, counted)
		}
	} else {
		f.wantsLeft(t, what, byNode, outer, 0)
	}
	for _, pod := range []string{byPod, byStrange} {
		if verdict, _, counted := f.nodes[0].leave(t, pod, outer, 0); verdict != drop || counted != 1 {
			t.Errorf("%s, from %s: verdict %d, %d counted as forged", what, pod, verdict, counted)
		}
	}
}

// receivedFrom is how many packets another node has carried to this one, as it counts them.
func (n *fleetNode) receivedFrom(t *testing.T, number int) uint64 {
	t.Helper()
	reader, err := n.dp.Reader()
	must(t, err)
	defer reader.Close()
	c, err := reader.PeerCounts(n.peer(number))
	must(t, err)
	return c.Received
}

// otherPortsOfAServiceCIDR has an external IP lie in a service CIDR: its other ports are refused, carried or not.
func otherPortsOfAServiceCIDR(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, a := f.nodes[0], nodeAddr(111, !f.client.Is4())
	key, p := lb.AddrPort{Addr: a, Port: claimedPort, Protocol: lb.TCP}, f.packet(40000, "S", 0)
	p.dst = at(a, 8080)
	was := n.told.ServiceCIDRs
	n.apply(t, []plan.Op{plan.PutServiceCIDRs{Prefixes: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}}})
	for _, carried := range []bool{false, true} {
		n.claim(t, key, carried)
		counted := n.counters(t)["drop no_service"]
		n.run(t, in, uplink, p.frame(t))
		if got := n.counters(t)["drop no_service"] - counted; got != 1 {
			t.Errorf("carried: %t: %d packets to another port are refused, want 1", carried, got)
		}
	}
	n.apply(t, []plan.Op{plan.PutServiceCIDRs{Prefixes: was}, plan.DeleteAddress{Addr: a}, plan.DeleteFrontend{Key: key}})
}
