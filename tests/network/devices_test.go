package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestChosenDevices has agents choose their devices, where others reach the nodes and their pods
// by more than the default route.
func TestChosenDevices(t *testing.T) {
	for _, l := range []struct {
		name    string
		make    func(t *testing.T) *network
		devices int  // that are chosen on each node
		shared  bool // a device leads to the pods of both nodes
		backs   bool // the nodes have addresses in another network
		pods    bool // those of a node have programs, too
	}{
		{"a second card", secondCard, 2, false, true, false},
		{"a VLAN beside the untagged network", vlanBeside, 2, false, true, false},
		{"a VLAN whose parent has the same addresses", vlanWithAddressesOfParent, 2, false, false, false},
		{"a bridge with the pods of all nodes", flatBridge, 2, true, false, true},
		{"a gateway that leads to the pods of all nodes", sharedGateway, 2, true, false, false},
	} {
		t.Run(l.name, func(t *testing.T) {
			n := l.make(t)
			n.devices = l.devices
			for _, node := range n.nodes {
				node.serve()
				if node.chooses = true; l.pods {
					node.options = []string{"--pod-devices", "all"}
				}
			}
			n.write("pods.yaml", n.podObjects(""))
			n.startAgents()
			for range 3 { // once flows of both directions are there, a packet may meet them at two devices
				n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
					wantAnswerOf(t, n, f, asked, answers, to, l.shared)
				})
			}
			for range 3 {
				if l.backs {
					fromBack(t, n)
				}
			}
			if l.pods {
				betweenPods(t, n)
			}
			policyLocal(t, n)
			transfers(t, n)
			for _, node := range n.nodes {
				for reason, count := range node.drops(t) {
					if count > 0 && reason != "no_local_endpoint" {
						t.Errorf("%s drops %d packets for %s", node.name, count, reason)
					}
				}
			}
		})
	}
}

// TestConnectionsGoOnAsDevicesAreChosen has a device get programs that leads to a backend on the node, which sees the clients of
// open connections. Then their Service gets another policy.
func TestConnectionsGoOnAsDevicesAreChosen(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *network{"a bridge": flatBridge, "a gateway": sharedGateway} {
		t.Run(name, func(t *testing.T) {
			n := make(t)
			for _, node := range n.nodes {
				node.serve()
			}
			n.startAgents()
			var conns []net.Conn
			for _, f := range families {
				for _, port := range []uint16{onNode1, local1} {
					for range 3 {
						conn, err := n.client.dial("tcp", n.nodes[0].at(f, port))
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
						conns = append(conns, conn)
					}
				}
			}
			said := n.wantAnswers(t, conns, nil)
			n.devices = 2
			for _, node := range n.nodes {
				node.stop()
				node.chooses = true
				node.startAgent(n.manifests)
			}
			for _, node := range n.nodes {
				node.awaitBalance(n.devices)
			}
			n.wantAnswers(t, conns, said)
			n.write("services.yaml", strings.ReplaceAll(services, "externalTrafficPolicy: Local", "externalTrafficPolicy: Cluster"))
			eventually(t, "the policy is in force", func() error {
				got, err := n.client.ask("tcp", n.nodes[1].at(0, local1))
				if err == nil && !strings.HasPrefix(got, "pod-1 ") {
					err = errors.New(got)
				}
				return err
			})
			n.wantAnswers(t, conns, said)
		})
	}
}

// wantAnswerOf asks a node for a pod, over TCP and UDP. A device that leads to pods of all nodes
// gives even the node's own pod an address of the node, as kube-proxy does.
func wantAnswerOf(t *testing.T, n *network, f family, asked, answers *node, to netip.AddrPort, shared bool) {
	for _, protocol := range []string{"tcp", "udp"} {
		got, err := n.client.ask(protocol, to)
		want := fmt.Sprintf("pod-%d ", answers.number)
		if asked == answers && !shared {
			want += clientAddr[f].String()
		}
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s %s answers %q, %v, want %q", protocol, to, got, err, want)
		}
		if asked != answers && strings.HasSuffix(got, " "+clientAddr[f].String()) {
			t.Errorf("%s %s: a pod on another node sees the client: %q", protocol, to, got)
		}
	}
}

// fromBack asks each node by the other network, from behind the other node.
func fromBack(t *testing.T, n *network) {
	for i, node := range n.nodes {
		for _, to := range []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.99.0.%d", node.number)), netip.MustParseAddr(fmt.Sprintf("fd00:99::%d", node.number))} {
			for port, want := range map[uint16]string{onNode1: "pod-1 ", onNode2: "pod-2 "} {
				for _, protocol := range []string{"tcp", "udp"} {
					got, err := n.nodes[1-i].guest.ask(protocol, netip.AddrPortFrom(to, port))
					if err != nil || !strings.HasPrefix(got, want) {
						t.Errorf("%s %s port %d answers %q, %v, want %q", protocol, to, port, got, err, want)
					}
				}
			}
		}
	}
}

// betweenPods has a pod of each node reach Services by its packets: they meet the programs of its
// device, then those of the device that leads to other nodes.
func betweenPods(t *testing.T, n *network) {
	for _, node := range n.nodes {
		node.awaitPods(2)
		for _, f := range families {
			for range 3 {
				for _, answers := range n.nodes {
					to := clusterIPOf(f, 30000+answers.number)
					want := fmt.Sprintf("pod-%d %s", answers.number, node.podAddrs(node.guest)[f])
					for _, protocol := range []string{"tcp", "udp"} {
						if got, err := node.guest.ask(protocol, to); got != want || err != nil {
							t.Errorf("%s %s from a pod of %s answers %q, %v, want %q", protocol, to, node.name, got, err, want)
						}
					}
				}
			}
		}
	}
}

// secondCard has the nodes reach each other's pods by a card without a default route.
func secondCard(t *testing.T) *network {
	n := newNetwork(t, false)
	plug(n.nodes[0].host, "back0", n.nodes[1].host, "back0", 1500)
	for i, node := range n.nodes {
		node.address("back0", fmt.Sprintf("10.99.0.%d/24", i+1), fmt.Sprintf("fd00:99::%d/64", i+1))
		node.routeToPods(n.nodes[1-i], "10.99.0.", "fd00:99::")
	}
	return n
}

// vlan makes a VLAN of the uplink.
func (n *node) vlan(t *testing.T, name string, id int) {
	t.Helper()
	err := n.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: eth0.Attrs().Index}, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the kernel has no VLAN devices (8021q)")
	}
	if err != nil {
		t.Fatal(err)
	}
	n.up(name)
}

// routeToPods sends what is for the pods of another node to its address in a network.
func (n *node) routeToPods(other *node, network4, network6 string) {
	n.tb.Helper()
	n.route(fmt.Sprintf("10.244.%d.0/24", other.number), network4+fmt.Sprint(other.number))
	n.route(fmt.Sprintf("fd00:10:244:%d::/64", other.number), network6+fmt.Sprint(other.number))
}

// vlanBeside has the nodes reach each other's pods by a VLAN of their cards.
func vlanBeside(t *testing.T) *network {
	n := newNetwork(t, false)
	for i, node := range n.nodes {
		node.vlan(t, "eth0.100", 100)
		node.address("eth0.100", fmt.Sprintf("10.99.0.%d/24", i+1), fmt.Sprintf("fd00:99::%d/64", i+1))
		node.routeToPods(n.nodes[1-i], "10.99.0.", "fd00:99::")
	}
	return n
}

// vlanWithAddressesOfParent has programs of the card and of the VLAN give flows the same addresses.
func vlanWithAddressesOfParent(t *testing.T) *network {
	n := newNetwork(t, false)
	for i, node := range n.nodes {
		node.vlan(t, "eth0.100", 100)
		node.address("eth0.100", node.addr.String()+"/32", node.addr6.String()+"/128")
		other := n.nodes[1-i]
		node.link("eth0.100", other.addr.String()+"/32")
		node.link("eth0.100", other.addr6.String()+"/128")
		node.connect(other, false)
	}
	return n
}

// flatBridge has the pods of both nodes in one network of layer 2, which the nodes reach by a
// bridge.
func flatBridge(t *testing.T) *network {
	n := newNetworkOf(t, layout{bridge: true})
	for i, node := range n.nodes {
		other := n.nodes[1-i]
		plug(node.host, "flat0", n.router, fmt.Sprint("pods-", i+1), 1500)
		node.execute("", "ip", "link", "set", "flat0", "master", "cni0")
		for _, prefix := range []string{fmt.Sprintf("10.244.%d.0/24", other.number), fmt.Sprintf("fd00:10:244:%d::/64", other.number)} {
			node.execute("", "ip", "route", "delete", prefix)
			node.link("cni0", prefix)
			node.pod.link("eth0", prefix)
		}
	}
	n.router.bridge("pods", "pods-1", "pods-2")
	return n
}

// sharedGateway has one device of each node lead to the pods of all, by a gateway that knows
// where they are.
func sharedGateway(t *testing.T) *network {
	n := newNetworkOf(t, layout{hub: true})
	for i, node := range n.nodes {
		number, other := node.number, 2-i
		plug(node.host, "ovn0", node.pods, "node", 1500)
		node.address("ovn0", fmt.Sprintf("100.64.%d.2/24", number), fmt.Sprintf("fd00:64:%d::2/64", number))
		node.pods.address("node", fmt.Sprintf("100.64.%d.1/24", number), fmt.Sprintf("fd00:64:%d::1/64", number))
		node.execute("", "ip", "route", "delete", fmt.Sprintf("10.244.%d.0/24", other))
		node.execute("", "ip", "route", "delete", fmt.Sprintf("fd00:10:244:%d::/64", other))
		node.route("10.244.0.0/16", fmt.Sprintf("100.64.%d.1", number))
		node.route("fd00:10:244::/48", fmt.Sprintf("fd00:64:%d::1", number))
		node.pods.route("0.0.0.0/0", fmt.Sprintf("100.64.%d.2", number))
		node.pods.route("::/0", fmt.Sprintf("fd00:64:%d::2", number))
	}
	plug(n.nodes[0].pods, "hub", n.nodes[1].pods, "hub", 1500)
	for i, node := range n.nodes {
		other := 2 - i
		node.pods.address("hub", fmt.Sprintf("100.65.0.%d/24", node.number), fmt.Sprintf("fd00:65::%d/64", node.number))
		for _, prefix := range []string{fmt.Sprintf("10.244.%d.0/24", other), fmt.Sprintf("100.64.%d.0/24", other)} {
			node.pods.route(prefix, fmt.Sprintf("100.65.0.%d", other))
		}
		for _, prefix := range []string{fmt.Sprintf("fd00:10:244:%d::/64", other), fmt.Sprintf("fd00:64:%d::/64", other)} {
			node.pods.route(prefix, fmt.Sprintf("fd00:65::%d", other))
		}
	}
	return n
}
