package network

import "testing"

// TestRedirectedFlows takes the paths of TestEveryPath past the stack where they
// lead to another node, and counts that they did.
func TestRedirectedFlows(t *testing.T) {
	for name, tunnel := range map[string]bool{"routes": false, "VXLAN": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, tunnel)
			for _, node := range n.nodes {
				node.serve()
				node.options = []string{"--redirect"}
				node.cniFirewall()
			}
			n.startAgents()
			for _, c := range []struct {
				name string
				test func(*testing.T, *network)
			}{
				{"NodePorts", nodePorts}, {"transfers", transfers}, {"fragments", fragments}, {"a packet whose time is up", timeExceeded},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, n) })
			}
			for _, node := range n.nodes {
				if node.counter(t, "flow_redirected") == 0 {
					t.Errorf("%s sent nothing past its stack", node.name)
				}
			}
			before := n.nodes[0].counter(t, "flow_redirected")
			if err := n.client.transfer(n.nodes[0].at(0, onNode1), 1<<20); err != nil {
				t.Error(err)
			}
			if after := n.nodes[0].counter(t, "flow_redirected"); after != before {
				t.Errorf("%d packets for a pod of the node went past the stack", after-before)
			}
		})
	}
}
