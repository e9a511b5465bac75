package network

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestEveryPath takes every path of the network, with routes and with VXLAN
// between the nodes.
func TestEveryPath(t *testing.T) {
	for name, tunnel := range map[string]bool{"routes": false, "VXLAN": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, tunnel)
			for _, node := range n.nodes {
				node.serve()
			}
			n.startAgents()
			for _, c := range []struct {
				name string
				test func(*testing.T, *network)
			}{
				{"a NodePort of each node leads to each pod", nodePorts},
				{"load-balancer and external IPs lead to the pod", virtualIPs},
				{"policy Local keeps the client and drops elsewhere", policyLocal},
				{"a Service without endpoints refuses", refusals},
				{"a megabyte goes both ways through a narrow link", transfers},
				{"datagrams go in fragments", fragments},
				{"a packet whose time is up is reported to its sender", timeExceeded},
				{"every machine on the way is heard of", hops},
				{"what does not fit behind the translation is reported", narrowPods},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, n) })
			}
		})
	}
}

// at is a port of a node.
func (n *node) at(f family, port uint16) netip.AddrPort {
	return netip.AddrPortFrom([2]netip.Addr{n.addr, n.addr6}[f], port)
}

// eachPath calls test for each node that is asked and each pod that answers.
func (n *network) eachPath(t *testing.T, test func(t *testing.T, f family, asked, answers *node, to netip.AddrPort)) {
	for _, f := range families {
		for _, asked := range n.nodes {
			for i, answers := range n.nodes {
				t.Run(fmt.Sprintf("%s %s pod-%d", f, asked.name, answers.number), func(t *testing.T) {
					test(t, f, asked, answers, asked.at(f, []uint16{onNode1, onNode2}[i]))
				})
			}
		}
	}
}

// sees is what a pod says of a client that asked a node: its own address where
// the pod is on that node, otherwise the one that the node leaves with.
func sees(f family, asked, answers *node) string {
	from := clientAddr[f]
	if asked != answers {
		from = asked.snat[f]
	}
	return fmt.Sprintf("pod-%d %s", answers.number, from)
}

func nodePorts(t *testing.T, n *network) {
	n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
		for _, protocol := range []string{"tcp", "udp"} {
			got, err := n.client.ask(protocol, to)
			if want := sees(f, asked, answers); got != want || err != nil {
				t.Errorf("%s %s answers %q, %v, want %q", protocol, to, got, err, want)
			}
		}
	})
}

func virtualIPs(t *testing.T, n *network) {
	for _, f := range families {
		for _, vip := range []netip.Addr{loadBalancer[f], external[f]} {
			for _, protocol := range []string{"tcp", "udp"} {
				got, err := n.client.ask(protocol, netip.AddrPortFrom(vip, 80))
				if want := sees(f, n.nodes[0], n.nodes[1]); got != want || err != nil {
					t.Errorf("%s %s answers %q, %v, want %q", protocol, vip, got, err, want)
				}
			}
		}
	}
}

func policyLocal(t *testing.T, n *network) {
	for _, f := range families {
		for _, protocol := range []string{"tcp", "udp"} {
			got, err := n.client.ask(protocol, n.nodes[0].at(f, local1))
			if want := sees(f, n.nodes[0], n.nodes[0]); got != want || err != nil {
				t.Errorf("%s by the node of the pod: %q, %v, want %q", protocol, got, err, want)
			}
		}
	}
	before := n.nodes[1].drops(t)["no_local_endpoint"]
	conn, err := n.client.dial("udp", n.nodes[1].at(0, local1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other node drops it", func() error {
		if n := n.nodes[1].drops(t)["no_local_endpoint"] - before; n != 1 {
			return fmt.Errorf("%d drops are counted, want 1", n)
		}
		return nil
	})
}

func refusals(t *testing.T, n *network) {
	for _, f := range families {
		for _, protocol := range []string{"tcp", "udp"} {
			_, err := n.client.ask(protocol, n.nodes[0].at(f, nowhere))
			if err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%s %s: %v, want a refusal", f, protocol, err)
			}
		}
	}
}

func transfers(t *testing.T, n *network) {
	n.eachPath(t, func(t *testing.T, _ family, _, _ *node, to netip.AddrPort) {
		n.forgetMTUs()
		if err := n.client.transfer(to, 1<<20); err != nil {
			t.Error(err)
		}
	})
}

func fragments(t *testing.T, n *network) {
	n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
		n.forgetMTUs()
		conn, err := n.client.dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got, err := exchange(conn, strings.Repeat("0123456789abcdef", 250))
		if want := sees(f, asked, answers); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	})
}

// forgetMTUs makes everybody find out anew how large a packet may be.
func (n *network) forgetMTUs() {
	n.tb.Helper()
	for _, h := range []*host{n.client, n.nodes[0].host, n.nodes[1].host, n.nodes[0].pod, n.nodes[1].pod} {
		h.do(func() error {
			for _, family := range []string{"ipv4", "ipv6"} {
				if err := os.WriteFile("/proc/sys/net/"+family+"/route/flush", []byte("1"), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
