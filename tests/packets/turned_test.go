package packets

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// TestPacketsForAServiceDoNotTurnBack has packets for addresses of Services that no frontend takes leave
// by a device.
func TestPacketsForAServiceDoNotTurnBack(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		b.vip = map[bool]netip.Addr{true: netip.MustParseAddr("203.0.113.77"), false: netip.MustParseAddr("2001:db8:f::77")}[b.client.Is4()]
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+p.String(), func(t *testing.T) { r.tell(t, story{tell: packetsDoNotTurnBack}, cast{b, r, p}) })
		}
	}
}

func packetsDoNotTurnBack(t *testing.T, c cast) {
	external := c.vip.Next()
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)), c.frontend(lb.ExternalIP, at(external, 80), at(c.local, 8080)),
		c.frontend(lb.ClusterIP, at(c.cluster, 80), at(c.local, 8080)))
	c.setCIDRs(t, c.services)
	defer c.setCIDRs(t)
	unused := c.cluster.Next()
	all := []netip.Addr{c.vip, external, c.cluster, unused, c.other}
	turn := func(came string, refused bool) {
		t.Helper()
		c.cameBy = came
		defer func() { c.cameBy = "" }()
		for _, to := range all {
			p := c.packet(at(c.client, 20000), at(to, 81), 3)
			ping := icmpError{from: c.client, to: to, kind: map[bool]uint8{true: 8, false: 128}[to.Is4()], word: 7<<16 | 1, about: []byte("are you there?")}.packet()
			switch {
			case !refused || to == c.other:
				c.untouched(t, "it goes on", out, uplink, p)
				c.untouched(t, "an echo request goes on", out, uplink, ping)
			case c.protocol == lb.TCP:
				c.allowResets(t)
				c.isReset(t, "it turns back", out, uplink, p)
				c.isReset(t, "it turns back", out, uplink, p.with("A"))
				c.refused(t, "an echo request turns back", out, uplink, ping)
			default:
				c.refused(t, "it turns back", out, uplink, p)
				c.refused(t, "an echo request turns back", out, uplink, ping)
			}
		}
	}
	turn(uplink, false) // there is no route
	c.routeTo(t, append(all, c.router)...)
	turn(uplink, false) // the address may be a neighbour's
	c.routeBy(t, c.router, all...)
	turn(uplink, true)
	if n := c.counters(t)["drop no_service_port"] - c.counted["drop no_service_port"]; n != map[bool]uint64{true: 12, false: 8}[c.protocol == lb.TCP] {
		t.Errorf("%d were counted", n)
	}
	turn(tunnel, false) // the address may be another node's
	turn("", false)     // the node itself, or a pod
	shared := c.devices[uplink]
	shared.Shared = true
	c.setDevice(t, shared)
	defer c.setDevice(t, c.devices[uplink])
	turn(uplink, false)
}

// routeBy makes routes by a router to addresses, in place of those of routeTo, until the test ends.
func (r *rig) routeBy(t *testing.T, router netip.Addr, addrs ...netip.Addr) {
	t.Helper()
	device := int(r.devices[uplink].Index)
	for _, a := range addrs {
		ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
		_ = netlink.RouteDel(&netlink.Route{LinkIndex: device, Dst: ip, Scope: netlink.SCOPE_LINK})
		by := &netlink.Route{LinkIndex: device, Dst: ip, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		must(t, netlink.RouteAdd(by))
		t.Cleanup(func() { must(t, netlink.RouteDel(by)) })
	}
}

// setDevice tells the datapath of a device in place of that with its name.
func (r *rig) setDevice(tb testing.TB, d plan.Device) {
	tb.Helper()
	list := []plan.Device{d}
	for name, other := range r.devices {
		if name != d.Name {
			list = append(list, other)
		}
	}
	must(tb, r.dp.SetDevices(list))
}
