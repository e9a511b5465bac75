package packets

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestFlowsAreListed makes one flow of each kind and reads them back.
func TestFlowsAreListed(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: flowsAreListed}, cast{v4, r, lb.TCP})
}

func flowsAreListed(t *testing.T, c cast) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
	c.establish(t, at(c.client, 1), vip, local)
	closing := c.establish(t, at(c.client, 2), vip, local)
	c.becomes(t, "one ends", in, uplink, closing.with("FA"), closing.with("FA").to(closing.src, local))
	begun := c.packet(at(c.client, 3), vip, 0)
	c.becomes(t, "one begins", in, uplink, begun, begun.to(begun.src, local))
	broken := c.packet(at(c.client, 4), at(c.vip2, 80), 0)
	c.becomes(t, "one goes away", in, uplink, broken, broken.to(broken.src, remote))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), local))
	c.isReset(t, "its backend does not stay", in, uplink, broken.with("A"))
	c.age(t, 10)

	i, err := datapath.Inspect(c.root)
	must(t, err)
	defer i.Close()
	states := map[netip.AddrPort]datapath.FlowState{}
	must(t, i.Flows(func(f datapath.Flow) error {
		if seconds := f.Idle.Seconds(); seconds < 9 || seconds > 60 {
			t.Errorf("%+v is idle for %.0f s, want 10", f, seconds)
		}
		if f.Hook != "in" {
			return nil
		}
		states[f.From] = f.State
		if to := map[bool]netip.AddrPort{true: remote, false: local}[f.To.Addr() == c.vip2]; f.NowTo != to || f.NowFrom != f.From || f.Protocol != lb.TCP {
			t.Errorf("%+v goes elsewhere than to %s", f, to)
		}
		return nil
	}))
	want := map[netip.AddrPort]datapath.FlowState{
		at(c.client, 1): datapath.FlowEstablished, at(c.client, 2): datapath.FlowClosing,
		at(c.client, 3): datapath.FlowHalfOpen, at(c.client, 4): datapath.FlowBroken,
	}
	if diff := cmp.Diff(want, states, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if room := i.FlowRoom(); room < c.cfg.Flows || room >= c.cfg.Flows+flowWays {
		t.Errorf("there is room for %d, want %d or some more", room, c.cfg.Flows)
	}
}

// TestFlowsHaveTheirState sends packets of one flow, and reads the state of each of its directions.
func TestFlowsHaveTheirState(t *testing.T) {
	const begun, confirmed = "S <SA", "S <SA A"
	r := newRig(t)
	for _, tc := range []struct {
		protocol lb.Protocol
		packets  string // flags of TCP, of the client or, with <, of the backend; a number of seconds between them
		want     datapath.FlowState
	}{
		{lb.TCP, "S", datapath.FlowHalfOpen}, {lb.TCP, begun, datapath.FlowHalfOpen}, {lb.TCP, "S 62", datapath.FlowExpired}, {lb.TCP, begun + " 62", datapath.FlowExpired},
		{lb.TCP, "S <RA", datapath.FlowClosed}, {lb.TCP, "S R", datapath.FlowClosed}, {lb.TCP, begun + " R", datapath.FlowClosed},
		{lb.TCP, confirmed, datapath.FlowEstablished}, {lb.TCP, confirmed + " PA <A 62", datapath.FlowEstablished}, {lb.TCP, confirmed + " 7600", datapath.FlowEstablished},
		{lb.TCP, confirmed + " FA", datapath.FlowClosing}, {lb.TCP, confirmed + " <FA", datapath.FlowClosing}, {lb.TCP, confirmed + " FA <A <PA A", datapath.FlowClosing},
		{lb.TCP, confirmed + " <FA A 62", datapath.FlowClosing}, {lb.TCP, confirmed + " FA 7600", datapath.FlowExpired},
		{lb.TCP, confirmed + " FA <FA", datapath.FlowClosed}, {lb.TCP, confirmed + " <FA FA <A", datapath.FlowClosed}, {lb.TCP, confirmed + " FA <FA A 7600", datapath.FlowClosed},
		{lb.TCP, confirmed + " R", datapath.FlowClosed}, {lb.TCP, confirmed + " RA", datapath.FlowClosed}, {lb.TCP, confirmed + " <R", datapath.FlowClosed}, {lb.TCP, confirmed + " <RA", datapath.FlowClosed},
		{lb.TCP, confirmed + " <R 3 A", datapath.FlowClosing}, // a client that goes on: somebody else has sent the reset
		{lb.TCP, confirmed + " FA <FA A S", datapath.FlowHalfOpen}, {lb.TCP, confirmed + " FA <FA A S <SA A", datapath.FlowEstablished},
		{lb.UDP, "S", datapath.FlowUnreplied}, {lb.UDP, "S S 3 S", datapath.FlowUnreplied}, {lb.UDP, "S <S", datapath.FlowReplied}, {lb.UDP, "S <S 62", datapath.FlowReplied},
		{lb.UDP, "S <S 3 S", datapath.FlowEstablished}, {lb.UDP, "S 182", datapath.FlowExpired}, {lb.UDP, "S <S 3 S 182", datapath.FlowExpired}, {lb.UDP, "S <S 3 S 182 <S", datapath.FlowEstablished},
	} {
		for _, remote := range []bool{false, true} {
			name := map[bool]string{false: "here ", true: "elsewhere "}[remote] + tc.protocol.String() + " " + tc.packets
			t.Run(name, func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.send(t, remote, tc.packets); c.wantState(t, tc.want) }}, cast{v4, r, tc.protocol})
			})
		}
	}
}

// The kernel answers a datagram to a Service without a backend, at a port of the node that nothing can have.
func TestARefusedDatagramHasItsState(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)))
		c.comesOut(t, "no backend is there", in, uplink, c.packet(at(c.client, 20000), at(c.vip, 80), 0))
		c.wantState(t, datapath.FlowRefused)
	}}, cast{v4, r, lb.UDP})
}

// send sends packets of one flow to a backend, on this node or on another.
func (c cast) send(t *testing.T, remote bool, packets string) {
	t.Helper()
	client, vip, backend := at(c.client, 20000), at(c.vip, 80), map[bool]netip.AddrPort{false: at(c.local, 8080), true: at(c.remote, 8080)}[remote]
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 0)
	left := p.to(client, backend)
	for _, one := range strings.Fields(packets) {
		flags, answer := strings.CutPrefix(one, "<")
		seconds, aged := map[string]uint64{"3": 3, "62": 62, "182": 182, "7600": 7600}[one]
		switch {
		case aged:
			c.age(t, seconds)
		case answer && remote:
			c.becomes(t, one, in, tunnel, left.answer(flags, nil), p.to(client, backend).answer(flags, nil))
			fallthrough
		case answer:
			c.becomes(t, one, out, uplink, p.to(client, backend).answer(flags, nil), p.answer(flags, nil))
		default:
			c.becomes(t, one, in, uplink, p.with(flags), p.to(client, backend).with(flags))
			if remote {
				left = c.comesOut(t, one, out, tunnel, p.to(client, backend).with(flags))
			}
		}
	}
}

// wantState wants all directions of flows to have a state, which is over if nothing is in flight.
func (c cast) wantState(t *testing.T, want datapath.FlowState) {
	t.Helper()
	i, err := datapath.Inspect(c.root)
	must(t, err)
	defer i.Close()
	var states []datapath.FlowState
	must(t, i.Flows(func(f datapath.Flow) error { states = append(states, f.State); return nil }))
	if len(states) < 2 || slices.ContainsFunc(states, func(s datapath.FlowState) bool { return s != want }) {
		t.Errorf("the directions are %v, want %s", states, want)
	}
	if n, each := c.inFlight(t); c.protocol == lb.TCP && (n > 0) != (want == datapath.FlowEstablished || want == datapath.FlowClosing) && want != datapath.FlowExpired {
		t.Errorf("%s: %v in flight", want, each)
	}
}
