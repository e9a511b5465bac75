package network

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestMartiansAreDropped lets a neighbour speak to the loopback of a node whose
// sysctls would let it in (CVE-2020-8558).
func TestMartiansAreDropped(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for _, h := range []*host{n.router, n.nodes[0].host} {
		h.do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
		})
	}
	n.router.do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteDel(&netlink.Route{Dst: ipNet(loopback), LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST})
	})
	n.router.route(loopback.String(), "192.0.2.1")
	for _, port := range []uint16{onNode1, 10250} {
		eventually(t, "it is dropped", func() error {
			before := n.nodes[0].drops(t)["martian"]
			if err := n.router.send(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), port)); err != nil {
				return err
			}
			if n.nodes[0].drops(t)["martian"] == before {
				return fmt.Errorf("nothing is counted")
			}
			return nil
		})
	}
}
