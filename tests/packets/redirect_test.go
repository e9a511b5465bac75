package packets

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestARedirectedPacketIsWhatARouterWouldSend gives packets for a backend on another node to
// a node that redirects, and compares what leaves, to the last byte and checksum.
func TestARedirectedPacketIsWhatARouterWouldSend(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Redirect = true })
	macs := r.routeTo(t, v4.remote, v6.remote)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.leavesAtOnce(t, macs) }}, cast{b, r, protocol})
			})
		}
	}
}

func (c cast) leavesAtOnce(t *testing.T, macs []byte) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for _, hops := range []uint8{255, 64, 2, 1} {
		p := c.packet(at(c.client, 40000+uint16(hops)), vip, 30)
		p.ttl = hops
		want, verdict := p.to(p.src, backend), uint32(redirect)
		want.ttl--
		frame := append(bytes.Clone(macs), want.frame(t)[12:]...)
		if hops == 1 { // the stack says so to the client
			want.ttl, verdict = hops, pass
			frame = want.frame(t)
		}
		for _, flags := range []uint32{0, sumUp} {
			if flags != 0 && !c.sums {
				continue
			}
			got, err := c.tryAs(in, uplink, p.frame(t), flags)
			must(t, err)
			if got.verdict != verdict || !bytes.Equal(got.frame, frame) {
				t.Errorf("with %d hops left, flags %d: verdict %d\ngot  %s\nwant %s", hops, flags, got.verdict, dump(got.frame), dump(frame))
			}
		}
	}
}

// routeTo lets the node forward, and makes routes to addresses by the uplink. It returns the
// Ethernet addresses of what leaves there.
func (r *rig) routeTo(t *testing.T, addrs ...netip.Addr) []byte {
	t.Helper()
	l, err := netlink.LinkByIndex(int(r.devices[uplink].Index))
	must(t, err)
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must(t, os.WriteFile("/proc/sys/net/"+path, []byte("1"), 0o644))
	}
	for _, path := range []string{"all", l.Attrs().Name} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+path+"/disable_ipv6", []byte("0"), 0o644))
	}
	for _, name := range []string{l.Attrs().Name, l.Attrs().Name + "-peer"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
	next := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	for _, a := range addrs {
		ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
		must(t, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ip, Scope: netlink.SCOPE_LINK}))
		must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.AsSlice(), HardwareAddr: next, State: unix.NUD_PERMANENT}))
	}
	return append(next, l.Attrs().HardwareAddr...)
}
