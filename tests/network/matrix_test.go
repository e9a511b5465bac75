package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The Services of the matrix: each has the pods of both nodes.
var matrixPolicies = []struct{ name, spec string }{
	{"both Cluster", ""},
	{"external Local", "  externalTrafficPolicy: Local\n"},
	{"internal Local", "  internalTrafficPolicy: Local\n"},
}

// matrixFrontends is four addresses of each Service, in both families, and for
// TCP and UDP.
var matrixFrontends = len(matrixPolicies) * 4 * 2 * 2

// addressKind is a row's kind of address.
type addressKind int

const (
	clusterIP addressKind = iota
	nodePort
	loadBalancerIP
	externalIP
	loopbackPort // a NodePort on loopback
)

func (k addressKind) String() string {
	return [...]string{"ClusterIP", "NodePort", "LoadBalancer", "external IP", "NodePort on loopback"}[k]
}

// matrixAddr is the address of a kind of the Service number i, seen from a node.
func matrixAddr(k addressKind, f family, i int, asked *node) netip.AddrPort {
	pick := func(format4, format6 string) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf([]string{format4, format6}[f], i)), 80)
	}
	switch k {
	case clusterIP:
		return pick("10.96.0.2%d", "fd00:10:96::2%d")
	case loadBalancerIP:
		return pick("203.0.113.2%d", "2001:db8:f::2%d")
	case externalIP:
		return pick("203.0.113.3%d", "2001:db8:f::3%d")
	case loopbackPort:
		return netip.AddrPortFrom(netip.MustParseAddr([]string{"127.0.0.1", "::1"}[f]), uint16(30020+i))
	default:
		return asked.at(f, uint16(30020+i))
	}
}

// matrixObjects are the Services, and the Pods of every node.
func matrixObjects() string {
	var out strings.Builder
	for i, p := range matrixPolicies {
		all := service(fmt.Sprintf("matrix-%d", i), 20+i, p.spec+fmt.Sprintf(`  externalIPs: ["203.0.113.3%d", "2001:db8:f::3%d"]
status:
  loadBalancer: {ingress: [{ip: 203.0.113.2%d}, {ip: "2001:db8:f::2%d"}]}
`, i, i, i, i), "1", "2")
		all = strings.ReplaceAll(all, fmt.Sprintf("nodePort: 3000%d", i), fmt.Sprintf("nodePort: %d", 30020+i))
		for _, family := range []string{"10.96.0.", "fd00:10:96::"} {
			all = strings.ReplaceAll(all, fmt.Sprintf("%s%d", family, i), fmt.Sprintf("%s2%d", family, i))
		}
		out.WriteString(strings.Replace(all, "type: NodePort", "type: LoadBalancer", 1))
	}
	return out.String()
}

// podObjects are the Pods of every node, with annotations.
func (n *network) podObjects(annotations string) string {
	var out strings.Builder
	for _, node := range n.nodes {
		for name, pod := range map[string]*host{"pod": node.pod, "guest": node.guest} {
			a := node.podAddrs(pod)
			fmt.Fprintf(&out, `---
apiVersion: v1
kind: Pod
metadata: {name: %s-%d, namespace: default, annotations: {%s}}
spec: {nodeName: %s, containers: [{name: a, image: a}]}
status: {podIPs: [{ip: %s}, {ip: "%s"}]}
`, name, node.number, annotations, node.name, a[0], a[1])
		}
	}
	return out.String()
}

// matrixRow is a client on node 1, or elsewhere, and what is expected of it.
type matrixRow struct {
	name  string
	kinds []addressKind
	// ask returns the answers of so many connections.
	ask func(protocol string, to netip.AddrPort, times int) ([]string, error)
	// local says whether only pods of the node answer.
	local func(k addressKind, policy int) bool
	// seen is whom a pod sees.
	seen func(f family, answers *node) netip.Addr
}

// TestMatrix is the table of kube-proxy's TestInternalExternalMasquerade, with
// real packets: who reaches which pods by which address, and whom these see. Where
// kube-proxy hides the client since answers would not find back otherwise, here
// the client is seen wherever they do.
func TestMatrix(t *testing.T) {
	for _, tc := range []struct {
		name     string
		layout   layout
		firewall bool
		flags    []string
	}{
		{"routes", layout{}, false, nil},
		{"a bridge, VXLAN and a firewall", layout{tunnel: true, bridge: true}, true, nil},
		{"routes, by drivers", layout{}, false, byDrivers},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNetworkOf(t, tc.layout)
			if len(tc.flags) > 0 {
				n.takeDriven()
			}
			for _, node := range n.nodes {
				node.serve()
				node.options = append([]string{"--pod-devices", "all"}, tc.flags...)
				if tc.firewall {
					node.cniFirewall()
				}
			}
			n.router.route("10.96.0.0/16", "192.0.2.1") // a ClusterIP from outside
			n.router.route("fd00:10:96::/112", "2001:db8::1")
			n.startAgentsWith(matrixObjects()+n.podObjects(""), matrixFrontends)
			for _, node := range n.nodes {
				node.awaitPods(2)
			}
			for _, row := range n.matrixRows() {
				t.Run(row.name, func(t *testing.T) { n.askRow(t, row) })
			}
			if repeated := n.nodes[0].counter(t, "flow_repeated"); (repeated > 0) != (len(tc.flags) > 0) {
				t.Errorf("drivers have repeated %d packets", repeated)
			}
		})
	}
}

func (n *network) matrixRows() []matrixRow {
	here := n.nodes[0]
	internal := func(k addressKind, policy int) bool { return k == clusterIP && policy == 2 }
	external := func(k addressKind, policy int) bool { return internal(k, policy) || k != clusterIP && policy == 1 }
	everywhere := []addressKind{clusterIP, nodePort, loadBalancerIP, externalIP}
	packets := func(h *host) func(string, netip.AddrPort, int) ([]string, error) {
		return func(protocol string, to netip.AddrPort, times int) (all []string, err error) {
			for range times {
				said, err := h.ask(protocol, to)
				if err != nil {
					return all, err
				}
				all = append(all, said)
			}
			return all, nil
		}
	}
	sockets := func(h *host) func(string, netip.AddrPort, int) ([]string, error) {
		return func(protocol string, to netip.AddrPort, times int) ([]string, error) {
			return here.askLocally(h, protocol, to, times)
		}
	}
	itself := func(pod *host) func(family, *node) netip.Addr {
		return func(f family, answers *node) netip.Addr {
			if pod == here.pod && answers == here { // hairpin
				return here.gateways()[f]
			}
			return here.podAddrs(pod)[f]
		}
	}
	socketItself := func(f family, answers *node) netip.Addr { return here.podAddrs(here.pod)[f] }
	ofNode := func(f family, answers *node) netip.Addr {
		if answers == here {
			return here.gateways()[f]
		}
		return here.snat[f]
	}
	outside := func(f family, answers *node) netip.Addr {
		if answers == here {
			return clientAddr[f]
		}
		return here.snat[f]
	}
	return []matrixRow{
		{"pod, by packets", everywhere, packets(here.guest), internal, itself(here.guest)},
		{"pod to itself and others, by packets", everywhere, packets(here.pod), internal, itself(here.pod)},
		{"pod, by sockets", everywhere, sockets(here.guest), internal, itself(here.guest)},
		{"pod to itself and others, by sockets", everywhere, sockets(here.pod), internal, socketItself},
		{"node, by sockets", append(everywhere, loopbackPort), sockets(here.host), internal, ofNode},
		{"outside", everywhere, packets(n.client), external, outside},
	}
}

// askRow asks every address of a row until all who should have answered.
func (n *network) askRow(t *testing.T, row matrixRow) {
	const local, everybody = 6, 24
	for _, f := range families {
		for policy, p := range matrixPolicies {
			for _, k := range row.kinds {
				for _, protocol := range []string{"tcp", "udp"} {
					to := matrixAddr(k, f, policy, n.nodes[0])
					nodes, times := n.nodes[:], everybody
					if row.local(k, policy) {
						nodes, times = nodes[:1], local
					}
					var want []string
					for _, node := range nodes {
						want = append(want, fmt.Sprintf("pod-%d %s", node.number, row.seen(f, node)))
					}
					got, err := row.ask(protocol, to, times)
					slices.Sort(got)
					if diff := cmp.Diff(want, slices.Compact(got)); diff != "" || err != nil {
						t.Fatalf("%s, %s of a Service with %s, %s: error %v, answers (-want +got):\n%s", protocol, k, p.name, to, err, diff)
					}
				}
			}
		}
	}
}

// gateways are the addresses of the node that its pods see of it.
func (n *node) gateways() [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.1", n.number)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::1", n.number))}
}
