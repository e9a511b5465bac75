package network

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"
)

// TestFlowsOutliveTheAgent kills the agents with many connections open, by
// every path, and starts them again.
func TestFlowsOutliveTheAgent(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	conns := n.openEverywhere(t, "tcp", 250)
	said := n.wantAnswers(t, conns, nil)
	for _, node := range n.nodes {
		node.stop()
	}
	n.wantAnswers(t, conns, said)
	for _, node := range n.nodes {
		node.startAgent(n.manifests)
		node.awaitBalance(n.devices)
	}
	n.wantAnswers(t, conns, said)
	if len(conns) != 2000 {
		t.Errorf("%d connections were tried, want 2000", len(conns))
	}
}

// allPaths calls test for each way to a pod.
func (n *network) allPaths(test func(f family, asked, answers *node, to netip.AddrPort)) {
	for _, f := range families {
		for _, asked := range n.nodes {
			for i, answers := range n.nodes {
				test(f, asked, answers, asked.at(f, []uint16{onNode1, onNode2}[i]))
			}
		}
	}
}

// wantAnswers asks on every connection, and compares with what was said before.
func (n *network) wantAnswers(t *testing.T, conns []net.Conn, before []string) []string {
	t.Helper()
	said := make([]string, len(conns))
	for i, conn := range conns {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		var err error
		if said[i], err = who(conn); err != nil {
			t.Fatalf("connection %d of %d to %s: %v", i, len(conns), conn.RemoteAddr(), err)
		}
		if before != nil && said[i] != before[i] {
			t.Fatalf("connection %d is answered %q, was %q", i, said[i], before[i])
		}
	}
	return said
}

// TestADeviceThatAppearsIsBalanced plugs a second client into a node that runs.
func TestADeviceThatAppearsIsBalanced(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	node, other := n.nodes[0], newHost(t, "other")
	plug(other, "eth0", node.host, "eth1", 1500)
	other.address("eth0", "198.51.101.7/24", "2001:db8:d::7/64")
	node.address("eth1", "198.51.101.1/24", "2001:db8:d::1/64")
	node.awaitBalance(2)
	for f, a := range []string{"198.51.101.1", "2001:db8:d::1"} {
		own := []string{"198.51.101.7", "2001:db8:d::7"}[f]
		for port, want := range map[uint16]string{onNode1: "pod-1 " + own, onNode2: "pod-2 " + node.snat[f].String()} {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), port)
			for _, protocol := range []string{"tcp", "udp"} {
				eventually(t, to.String(), func() error {
					if got, err := other.ask(protocol, to); got != want || err != nil {
						return fmt.Errorf("%s: %q, %v, want %q", protocol, got, err, want)
					}
					return nil
				})
			}
		}
	}
	node.do(func() error { return removeLink("eth1") })
	node.awaitBalance(1)
	if got, err := n.client.ask("tcp", node.at(0, onNode1)); got != sees(0, node, node) || err != nil {
		t.Errorf("without it the node answers %q, %v", got, err)
	}
}

// TestBesideTheRulesOfACNI has a firewall that forwards only from and to pods
// and drops what the kernel's conntrack takes for invalid, and masquerades what
// pods send out of the cluster.
func TestBesideTheRulesOfACNI(t *testing.T) {
	for name, tunnel := range map[string]bool{"routes": false, "VXLAN": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, tunnel)
			for _, node := range n.nodes {
				node.serve()
				node.cniFirewall()
			}
			n.startAgents()
			n.allPaths(func(f family, asked, answers *node, to netip.AddrPort) {
				for _, protocol := range []string{"tcp", "udp"} {
					got, err := n.client.ask(protocol, to)
					if want := sees(f, asked, answers); got != want || err != nil {
						t.Errorf("%s %s answers %q, %v, want %q", protocol, to, got, err, want)
					}
				}
				n.forgetMTUs()
				if err := n.client.transfer(to, 1<<20); err != nil {
					t.Errorf("transfer %s: %v", to, err)
				}
			})
		})
	}
}

// cniFirewall sets the rules that CNIs set, in both families.
func (n *node) cniFirewall() {
	n.tb.Helper()
	if _, err := exec.LookPath("iptables"); err != nil {
		n.tb.Skip("needs iptables: apt-get install iptables")
	}
	n.firewall("iptables", fmt.Sprintf("10.244.%d.0/24", n.number), "10.244.0.0/16")
	n.firewall("ip6tables", fmt.Sprintf("fd00:10:244:%d::/64", n.number), "fd00:10:244::/48")
}

// firewall sets the rules that CNIs set, for the pods of the node and of all.
func (n *node) firewall(tool, pods, all string) {
	n.tb.Helper()
	for _, args := range [][]string{
		{"-P", "FORWARD", "DROP"},
		{"-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"},
		{"-A", "FORWARD", "-s", all, "-j", "ACCEPT"},
		{"-A", "FORWARD", "-d", all, "-j", "ACCEPT"},
		{"-t", "nat", "-A", "POSTROUTING", "-s", pods, "!", "-d", all, "-j", "MASQUERADE"},
	} {
		n.do(func() error {
			if out, err := exec.Command(tool, append([]string{"-w"}, args...)...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s %v: %w: %s", tool, args, err, out)
			}
			return nil
		})
	}
}
