package network

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunnel has a node reach the others, and their pods, over VXLAN. Then it has to compute checksums.
func (f *fabric) tunnel(n *node) {
	f.tb.Helper()
	var others []*node
	for _, other := range f.nodes {
		if other != n {
			others = append(others, other)
		}
	}
	n.vxlan("vx0", n.addr.String(), others[0].addr.String())
	n.do(func() error {
		l, err := netlink.LinkByName("vx0")
		if err != nil {
			return err
		}
		return netlink.NeighAppend(&netlink.Neigh{ // what is for all goes to the second one, too
			LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT,
			HardwareAddr: make(net.HardwareAddr, 6), IP: net.IP(others[1].addr.AsSlice()),
		})
	})
	n.address("vx0", n.snat[0].String()+"/24", n.snat[1].String()+"/64")
	for _, other := range others {
		n.route(fmt.Sprintf("10.244.%d.0/24", other.number), other.snat[0].String())
		n.route(fmt.Sprintf("fd00:10:244:%d::/64", other.number), other.snat[1].String())
	}
	for _, device := range []string{"eth0", "pod0", "vx0"} {
		n.sumHere(device)
	}
	f.pods[n.number-1].sumHere("eth0")
	f.client.sumHere("eth0")
}

// Nodes that are known by an address of a VXLAN device which drops what is carried, by its strict
// filter of reverse paths, get what begins by SNAT, and nothing is lost. Once the filter is loose
// all is carried, datagrams as long as the client's link takes, too.
func TestNodesBehindAFilteredTunnelAreNotCarriedTo(t *testing.T) {
	f := newFabricOver(t, "dsr", underlay{mtu: 1500, vxlan: true})
	f.announce([]int{0})
	f.endpoints([]int{1, 2})
	f.start()
	ask := func(family family, hidden bool) {
		t.Helper()
		for range 5 {
			got, err := f.client.ask("tcp", carriedAt[family])
			if sees := strings.HasSuffix(got, " "+clientAddr[family].String()); err != nil || sees == hidden {
				t.Errorf("%v: %q, %v; hidden is to be %v", family, got, err, hidden)
			}
		}
	}
	for _, family := range families {
		ask(family, true)
	}
	for _, n := range f.nodes {
		n.filter("2", "vx0")
	}
	eventually(t, "all nodes carry", f.carries)
	for _, family := range families {
		ask(family, false)
		f.wantLongestDatagram(t, family)
	}
}
