package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
)

// TestMarkedPodsAreBalancedByTheirPacketsAlone takes the mark away and gives it
// back while the agents run: what a process of the pod is told changes with it. Another network namespace has
// the addresses of that pod.
func TestMarkedPodsAreBalancedByTheirPacketsAlone(t *testing.T) {
	n := newNetworkOf(t, layout{bridge: true})
	for _, node := range n.nodes {
		node.serve()
		node.options = []string{"--pod-devices", "marked"}
	}
	here := n.nodes[0]
	here.newTwin(t, here.guest)
	marked := n.podObjects(`headgate.dev/socket-balancing: "off"`)
	n.write("pods.yaml", marked)
	n.startAgents()
	asks := func(want map[string]uint64) {
		t.Helper()
		for f, service := range []string{"10.96.0.2", "fd00:10:96::2"} {
			before := here.counts(t)
			said, err := here.askLocally(here.guest, "tcp", netip.AddrPortFrom(netip.MustParseAddr(service), 80), 3)
			if one := "pod-2 " + here.podAddrs(here.guest)[f].String(); err != nil || strings.Join(said, ",") != strings.Join([]string{one, one, one}, ",") {
				t.Fatalf("answers %q, %v, want three of %s", said, err, one)
			}
			after := here.counts(t)
			for name, n := range want {
				if got := after[name] - before[name]; got != n {
					t.Errorf("%s of %s: %d were counted, want %d", name, service, got, n)
				}
			}
		}
	}
	here.awaitMarked(2)
	asks(map[string]uint64{"connect": 0, "flow_made": 3})

	n.write("pods.yaml", strings.ReplaceAll(marked, `"off"`, `"on"`))
	here.awaitMarked(0)
	asks(map[string]uint64{"connect": 3, "flow_made": 0})

	n.write("pods.yaml", marked)
	here.awaitMarked(2)
	asks(map[string]uint64{"connect": 0, "flow_made": 3})
}

// awaitMarked waits until the sockets of so many pods are left alone: that comes behind the programs of
// their devices.
func (n *node) awaitMarked(pods int) {
	n.tb.Helper()
	n.awaitPods(pods)
	eventually(n.tb, n.name+" leaves sockets of its pods alone", func() error {
		r, err := datapath.Inspect(n.root)
		if err != nil {
			return err
		}
		defer r.Close()
		counts, err := r.CountEntries()
		if is := int(counts["exempt_namespaces"]); err == nil && is != pods {
			err = fmt.Errorf("%d pods are left alone, want %d", is, pods)
		}
		return err
	})
}

// TestPodsMoveMegabytes has pods by packets move what does not fit into a packet:
// to a backend on their own node, on another one, and to themselves, with super-packets
// as veths pass them on.
func TestPodsMoveMegabytes(t *testing.T) {
	for name, l := range map[string]layout{"routes": {}, "a bridge and VXLAN": {bridge: true, tunnel: true}} {
		t.Run(name, func(t *testing.T) {
			n := newNetworkOf(t, l)
			for _, node := range n.nodes {
				node.serve()
				node.options = []string{"--pod-devices", "all"}
				node.cniFirewall()
			}
			n.write("pods.yaml", n.podObjects(""))
			n.startAgents()
			here := n.nodes[0]
			here.awaitPods(2)
			for client, h := range map[string]*host{"a pod": here.guest, "the pod itself": here.pod} {
				for _, f := range families {
					for digit := range 2 {
						to := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf([]string{"10.96.0.%d", "fd00:10:96::%d"}[f], digit+1)), 80)
						n.forgetMTUs()
						if err := h.transfer(to, 1<<20); err != nil {
							t.Errorf("%s to pod-%d by %s: %v", client, digit+1, to, err)
						}
						conn, err := h.dial("udp", to)
						if err != nil {
							t.Fatal(err)
						}
						if _, err = exchange(conn, strings.Repeat("0123456789abcdef", 250)); err != nil {
							t.Errorf("%s to pod-%d by %s, fragments: %v", client, digit+1, to, err)
						}
						conn.Close()
					}
				}
			}
		})
	}
}

// TestPodsHearRefusals asks where nobody serves.
func TestPodsHearRefusals(t *testing.T) {
	n := newNetworkOf(t, layout{})
	for _, node := range n.nodes {
		node.options = []string{"--pod-devices", "all"}
	}
	n.write("pods.yaml", n.podObjects(""))
	n.startAgents()
	here := n.nodes[0]
	here.awaitPods(2)
	for _, to := range []string{"10.96.0.5:80", "[fd00:10:96::5]:80", "192.0.2.1:30005", "[2001:db8::1]:30005"} {
		for _, protocol := range []string{"tcp", "udp"} {
			_, err := here.guest.ask(protocol, netip.MustParseAddrPort(to))
			if err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%s %s: %v, want a refusal", protocol, to, err)
			}
		}
	}
}

// counts returns what the datapath of a node has counted.
func (n *node) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	s := n.status(t)
	return s.Counters
}
