package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestFlowsOutliveAnAddressOfTheNode replaces the addresses of the device by which flows go to another node, while the
// agent runs and while it does not. Datagrams of the same socket go on, and connections are reset.
func TestFlowsOutliveAnAddressOfTheNode(t *testing.T) {
	n := newNetwork(t, true)
	node := n.nodes[0]
	for _, other := range n.nodes {
		other.serve()
	}
	n.startAgents()
	before, after := node.snat, [2]netip.Addr{netip.MustParseAddr("172.31.0.177"), netip.MustParseAddr("fd00:31::177")}
	datagrams, streams := n.openTo(t, "udp", node), n.openTo(t, "tcp", node)
	wantSource(t, datagrams, before)

	n.replaceSource(node, before, after)
	for f, conn := range streams {
		eventually(t, families[f].String()+": the connection is reset", func() error {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			if said, err := who(conn); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				return fmt.Errorf("%q, %w, want a reset", said, err)
			}
			return nil
		})
	}
	wantSource(t, datagrams, after)

	node.stop()
	n.replaceSource(node, after, before)
	node.startAgent(n.manifests)
	wantSource(t, datagrams, before)
}

// openTo begins a flow of each family by a node to the pod of the other one.
func (n *network) openTo(t *testing.T, protocol string, by *node) (conns [2]net.Conn) {
	t.Helper()
	for f := range conns {
		conn, err := n.client.dial(protocol, by.at(family(f), onNode2))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conns[f] = conn
	}
	return conns
}

// wantSource waits until sockets get answers from the pod of node 2, which sees these addresses.
func wantSource(t *testing.T, conns [2]net.Conn, source [2]netip.Addr) {
	t.Helper()
	for f, conn := range conns {
		want := "pod-2 " + source[f].String()
		eventually(t, want, func() error {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
			if got, err := exchange(conn, "hello"); got != want || err != nil {
				return fmt.Errorf("%q, %w, want %q", got, err, want)
			}
			return nil
		})
	}
}

// replaceSource gives the device of a node to the other one's pods addresses in place of those before.
func (n *network) replaceSource(node *node, before, after [2]netip.Addr) {
	bits := [2]int{24, 64}
	node.do(func() error {
		vx, err := netlink.LinkByName("vx0")
		for f, a := range before {
			if err == nil {
				err = netlink.AddrDel(vx, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, bits[f]))})
			}
		}
		return err
	})
	for f, a := range after {
		node.address("vx0", netip.PrefixFrom(a, bits[f]).String())
	}
	node.route("10.244.2.0/24", n.nodes[1].snat[0].String())
	node.route("fd00:10:244:2::/64", n.nodes[1].snat[1].String())
}
