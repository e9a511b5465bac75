package network

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// TestCarriedTransfersArriveWhole has all go to other nodes than the one where it comes in: long
// transfers, of which the client's device is to cut segments, and datagrams.
func TestCarriedTransfersArriveWhole(t *testing.T) {
	const transfers = 4
	for _, u := range []underlay{
		{name: "nodes of IPv4", mtu: 1500},
		{name: "nodes of IPv6, MTU 1400", mtu: 1400, ipv6: true},
		{name: "nodes of IPv4 that sum up", mtu: 1500, sums: true},
		{name: "nodes of IPv6", mtu: 1500, ipv6: true},
		{name: "nodes of IPv4, by drivers", mtu: 1500, xdp: true},
		{name: "nodes of IPv6, by drivers", mtu: 1500, ipv6: true, xdp: true},
	} {
		t.Run(u.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", u)
			f.startCarrying(t, 1, 2)
			for _, family := range families {
				for range transfers {
					f.wantTransfer(t, family, 4<<20)
				}
			}
			f.wantDatagrams(t)
			if n := f.carriedAtDrivers(t); u.xdp != (n > 0) {
				t.Errorf("drivers carried %d packets", n)
			}
		})
	}
}

// TestLongCarriedTransfersOverNarrowLegs moves 100 MB each way, where one leg is narrow between the
// client and the router, and one to the home. What a router says of the first comes in at a node that
// carries nothing else: who sends has to hear of it. Where no error arrives the home's word alone, in
// its answer to a SYN, keeps segments short enough to be carried.
func TestLongCarriedTransfersOverNarrowLegs(t *testing.T) {
	for _, u := range []underlay{
		{name: "legs of 1,300 and 1,400", mtu: 1500, home: 1400, leg: 1300},
		{name: "no ICMP", mtu: 1500, home: 1400, quiet: true},
	} {
		t.Run(u.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", u)
			const ingress, home, other = 0, 1, 2
			f.startCarrying(t, home)
			f.announceErrors(other)
			for _, family := range families {
				told := f.nodes[other].carriedTo(t)
				f.wantTransfer(t, family, 50<<20)
				if told = f.nodes[other].carriedTo(t) - told; (told > 0) != (u.leg > 0) {
					t.Errorf("%s: %d errors are carried", family, told)
				}
			}
		})
	}
}

// TestNodesOfBothFamiliesChooseOne has nodes that choose differently carry to each other, as while that
// is changed node by node.
func TestNodesOfBothFamiliesChooseOne(t *testing.T) {
	f := newFabricOver(t, "dsr", underlay{mtu: 1500, both: true})
	f.startCarrying(t, 0, 1, 2)
	for i, n := range f.nodes {
		over6 := i < len(f.nodes)-1
		n.wantPeersOver(t, over6)
		f.announce([]int{i})
		was := n.carriedTo(t)
		for _, family := range families {
			f.wantTransfer(t, family, 1<<20)
			f.dialCarried(t, family, n).Close()
		}
		if n.carriedTo(t) == was {
			t.Errorf("%s carries nothing", n.name)
		}
	}
}

// wantPeersOver wants both peers of a node known by addresses of a family.
func (n *node) wantPeersOver(t *testing.T, v6 bool) {
	t.Helper()
	r, err := datapath.Inspect(n.root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, p := range r.Peers() {
		if p.Theirs.Is6() != v6 || p.Ours.Is6() != v6 {
			t.Errorf("%s carries to %s from %s; over IPv6: want %v", n.name, p.Theirs, p.Ours, v6)
		}
	}
}

// startCarrying starts agents, with backends on some nodes, and all that is for the Service at the
// first one.
func (f *fabric) startCarrying(t *testing.T, homes ...int) {
	t.Helper()
	f.announce([]int{0})
	f.endpoints(homes)
	f.start()
	eventually(t, "all nodes carry", f.carries)
}

// wantTransfer has so many bytes arrive whole, each way.
func (f *fabric) wantTransfer(t *testing.T, family family, bytes int64) {
	t.Helper()
	if err := f.client.transfer(carriedAt[family], bytes); err != nil {
		t.Errorf("%s: %v", carriedAt[family], err)
	}
}

// announceErrors has the router send ICMP that is for the Service to one node, whatever else goes to
// others.
func (f *fabric) announceErrors(to int) {
	f.tb.Helper()
	const table = 100
	for family, at := range carriedAt {
		rule := netlink.NewRule()
		rule.Family, rule.IPProto = []int{unix.AF_INET, unix.AF_INET6}[family], []int{unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}[family]
		rule.Table, rule.Priority = table, table
		via := [2]netip.Addr{f.nodes[to].addr, f.nodes[to].addr6}[family]
		route := &netlink.Route{Dst: ipNet(netip.PrefixFrom(at.Addr(), at.Addr().BitLen())), Gw: net.IP(via.AsSlice()), Table: table}
		f.router.do(func() error {
			if err := netlink.RuleAdd(rule); err != nil {
				return fmt.Errorf("add a rule: %w", err)
			}
			return netlink.RouteReplace(route)
		})
	}
}

// dropErrors has a machine drop all ICMP errors, those of its own, too.
func (h *host) dropErrors() {
	h.tb.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		h.tb.Skip("needs nftables: apt-get install nftables")
	}
	h.execute(`table inet quiet {
 chain comes { type filter hook prerouting priority raw; jump errors; }
 chain own { type filter hook output priority raw; jump errors; }
 chain errors {
  icmp type { destination-unreachable, time-exceeded, parameter-problem } drop
  icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } drop
 }
}
`, "nft", "-f", "-")
}
