package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// TestTenThousandFlowsAtOnce opens them all before it uses any again: half of
// them over TCP, half over UDP.
func TestTenThousandFlowsAtOnce(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	connections, flows := n.openEverywhere(t, "tcp", 625), n.openEverywhere(t, "udp", 625)
	if got := len(connections) + len(flows); got != 10_000 {
		t.Errorf("%d flows are open, want 10,000", got)
	}
	var said, heard []string
	for range 2 {
		said = n.wantAnswers(t, connections, said)
		heard = n.wantEchoes(t, flows, heard)
	}
}

// openEverywhere opens so many connections by each path.
func (n *network) openEverywhere(t *testing.T, protocol string, each int) (conns []net.Conn) {
	t.Helper()
	for range each {
		n.allPaths(func(_ family, _, _ *node, to netip.AddrPort) {
			conn, err := n.client.dial(protocol, to)
			if err != nil {
				t.Fatalf("after %d connections: %v", len(conns), err)
			}
			t.Cleanup(func() { conn.Close() })
			conns = append(conns, conn)
		})
	}
	return conns
}

// wantEchoes sends a datagram by every connection, and compares who answers
// with before.
func (n *network) wantEchoes(t *testing.T, conns []net.Conn, before []string) []string {
	t.Helper()
	said := make([]string, len(conns))
	for i, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		var err error
		if said[i], err = exchange(conn, "hello"); err != nil {
			t.Fatalf("flow %d of %d to %s: %v", i, len(conns), conn.RemoteAddr(), err)
		}
		if before != nil && said[i] != before[i] {
			t.Fatalf("flow %d is answered %q, was %q", i, said[i], before[i])
		}
	}
	return said
}

// TestAThirdNode is asked for pods that are all on other nodes, and takes over
// an address in the middle of a connection.
func TestAThirdNode(t *testing.T) {
	n := newNetwork(t, false)
	third := n.addThird()
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	n.startAgentOf(third, testenv.BPFRoot(t), frontendCount)
	third.awaitBalance(n.devices)
	for _, f := range families {
		for i, answers := range n.nodes {
			for _, protocol := range []string{"tcp", "udp"} {
				to := third.at(f, []uint16{onNode1, onNode2}[i])
				got, err := n.client.ask(protocol, to)
				if want := sees(f, third, answers); got != want || err != nil {
					t.Errorf("%s %s answers %q, %v, want %q", protocol, to, got, err, want)
				}
			}
		}
	}
	vip := netip.AddrPortFrom(loadBalancer[0], 80)
	conn, err := n.client.dial("tcp", vip)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n.wantAnswers(t, []net.Conn{conn}, nil)
	n.router.route("203.0.113.0/24", third.addr.String())
	if said, err := who(conn); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a connection that the other node does not know: %q, %v, want a reset", said, err)
	}
	if got, err := n.client.ask("tcp", vip); got != sees(0, third, n.nodes[1]) || err != nil {
		t.Errorf("a new one answers %q, %v", got, err)
	}
}

// addThird plugs in a node whose pods do not serve.
func (n *network) addThird() *node {
	n.tb.Helper()
	third := n.newNode(3, layout{})
	n.router.do(func() error {
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(third.name)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, bridge)
	})
	for _, node := range n.nodes {
		third.connect(node, false)
	}
	return third
}

// TestConnectionsEndWithTheirBackend takes the backend of connections away, on
// the node that was asked and on another one.
func TestConnectionsEndWithTheirBackend(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	var lost, kept []net.Conn
	n.allPaths(func(_ family, _, answers *node, to netip.AddrPort) {
		conn, err := n.client.dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if answers == n.nodes[1] {
			lost = append(lost, conn)
		} else {
			kept = append(kept, conn)
		}
	})
	n.wantAnswers(t, lost, n.wantAnswers(t, lost, nil))
	written := [2]uint64{n.nodes[0].status(t).Writes, n.nodes[1].status(t).Writes}
	n.write("services.yaml", servicesOf())
	for i, node := range n.nodes {
		node.awaitWrites(t, written[i]) // no connection of the test is open as the backend leaves
	}
	n.allPaths(func(_ family, asked, answers *node, to netip.AddrPort) {
		eventually(t, asked.name+" refuses", func() error {
			conn, err := n.client.dial("tcp", to)
			if err == nil {
				conn.Close()
			}
			if refused := errors.Is(err, unix.ECONNREFUSED); refused != (answers == n.nodes[1]) {
				return fmt.Errorf("dial %s: %w", to, err)
			}
			return nil
		})
	})
	n.wantAnswers(t, kept, n.wantAnswers(t, kept, nil))
	for _, conn := range lost {
		if said, err := who(conn); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %q, %v, want a reset", conn.RemoteAddr(), said, err)
		}
	}
	for _, node := range n.nodes {
		if got := node.counter(t, "flow_broken"); got != 2 {
			t.Errorf("%s has broken %d flows, want one of each family", node.name, got)
		}
	}
}

// awaitWrites waits until the agent has written more than so often, and writes no more.
func (n *node) awaitWrites(t *testing.T, before uint64) {
	t.Helper()
	last := before
	eventually(t, n.name+" has written what changed", func() error {
		now := n.status(t).Writes
		if now == before || now != last {
			last = now
			return fmt.Errorf("%d writes, and %d before", now, before)
		}
		return nil
	})
}
