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
	n.apply(t, []plan.Op{
		plan.PutFrontend{Key: at, Value: plan.Frontend{
			Service: fleetService, Kind: lb.ExternalIP, Members: plan.Table{Offset: fleetMembersAt, Size: 6}, Carried: carried,
			Views: [lb.NumViews]plan.View{lb.Internal: view, lb.External: view},
		}},
		plan.PutAddress{Addr: at.Addr, Kind: plan.FrontendAddress},
	})
}

// tunnelsAreLeftAlone has nodes pass IP in IP between nodes, whatever is in it: networks of pods have such tunnels, and a
// Service may claim the address of a pod. So nothing in it is taken for carried.
func tunnelsAreLeftAlone(t *testing.T, f *fleet) {
	f.serve(t, 2)
	pod := nodeAddr(110, !f.client.Is4())
	key := lb.AddrPort{Addr: pod, Port: claimedPort, Protocol: lb.TCP}
	for _, n := range f.nodes[:2] {
		n.claim(t, key, true)
	}
	defer func() {
		for _, n := range f.nodes[:2] {
			n.apply(t, []plan.Op{plan.DeleteAddress{Addr: pod}, plan.DeleteFrontend{Key: key}})
		}
	}()
	p, whole := f.packet(40000, "S", 10), f.packet(40000, "S", 64)
	claimed := p.to(p.src, at(pod, claimedPort))
	tunnel := *f
	tunnel.ipip = true
	for what, inner := range map[string]packet{
		"for the Service": p, "for a claimed port": claimed, "for another port": p.to(p.src, at(pod, 8080)),
		"a fragment": cut(whole.to(whole.src, claimed.dst), 70, 40, 2)[1], "a question": f.answerFrom(f.nodes[1].addr),
	} {
		outer := tunnel.outerOf(0, 1, inner.frame(t), 0, 0)
		if verdict, made := f.nodes[1].run(t, in, uplink, outer); verdict != pass || !bytes.Equal(made, outer) {
			t.Errorf("%s: verdict %d for %s, given %s", what, verdict, dump(made), dump(outer))
		}
		for _, from := range []string{byPod, byStrange, byNode, uplink} {
			f.wantsLeft(t, what, from, outer, 0)
		}
	}
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
