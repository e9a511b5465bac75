package network

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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

// Networks of pods have tunnels of IP in IP between nodes. The stack of the other node gets each of their packets,
// also where a carried Service has the address of a pod, and whether or not the packet has a port.
func TestTunnelsOfIPInIPPass(t *testing.T) {
	const from, home = 0, 1
	f := newFabricOver(t, "dsr", underlay{mtu: 1500, both: true})
	f.startCarrying(t, home)
	source := netip.AddrPortFrom(clientAddr[0], 40000)
	pod := netip.AddrPortFrom(f.nodes[home].podAddrs(f.pods[home])[0], 8080)
	packets := [][]byte{
		datagramOf(source, carriedAt[0], "to a carried port"),
		datagramOf(source, netip.AddrPortFrom(carriedAt[0].Addr(), 81), "to another port"),
		datagramOf(source, pod, "to a pod"),
		datagramOf(source, netip.AddrPortFrom(f.nodes[from].addr, 6635), "as a question"),
		fragmentOf(t, source.Addr(), carriedAt[0].Addr(), 1, 1024, false, []byte("a fragment")),
		fragmentOf(t, clientAddr[1], carriedAt[1].Addr(), 1, 1024, false, []byte("a fragment")),
	}
	for _, outer := range families {
		for inner, protocol := range []int{unix.IPPROTO_IPIP, unix.IPPROTO_IPV6} {
			of := slices.DeleteFunc(slices.Clone(packets), func(p []byte) bool { return p[0]>>4 != [2]byte{4, 6}[inner] })
			begins, ends := f.nodes[from].tunnelEnd(outer, protocol), f.nodes[home].tunnelEnd(outer, protocol)
			to := [2]netip.Addr{f.nodes[home].addr, f.nodes[home].addr6}[outer]
			for _, p := range of {
				if _, err := begins.WriteTo(p, &net.IPAddr{IP: to.AsSlice()}); err != nil {
					t.Fatal(err)
				}
			}
			if got := received(t, ends); !slices.EqualFunc(got, of, bytes.Equal) {
				t.Errorf("%v in %v: of %d packets %d get to the stack of the home", families[inner], outer, len(of), len(got))
			}
			begins.Close()
			ends.Close()
		}
	}
	if n := f.takenForForged(t); n > 0 {
		t.Errorf("%d packets are taken for forged", n)
	}
}

// tunnelEnd returns a socket that gets what the stack of a node gets of a protocol behind IP.
func (n *node) tunnelEnd(outer family, protocol int) (conn net.PacketConn) {
	n.tb.Helper()
	n.do(func() (err error) {
		conn, err = net.ListenPacket(fmt.Sprintf("%s:%d", [2]string{"ip4", "ip6"}[outer], protocol), "")
		return err
	})
	return conn
}

// received returns what a socket gets until it gets nothing for a while.
func received(t *testing.T, conn net.PacketConn) (all [][]byte) {
	t.Helper()
	for b := make([]byte, 2048); ; {
		if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, _, err := conn.ReadFrom(b)
		if err != nil {
			return all
		}
		all = append(all, bytes.Clone(b[:n]))
	}
}
