package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic/rules"
	"github.com/headgate/headgate/tests/testenv"
)

// The Services that only this test has: with session affinity, and with a table for hashes.
// Rules send each client of theirs to pod 1.
const (
	affine = 30006
	hashed = 30007
)

// talk is a connection that is held at both of its ends.
type talk struct {
	name           string
	client, server net.Conn
	guessed        bool // its backend is, by session affinity or by a hash, where nobody knows it
}

// besideStage is a network whose first node has rules as kube-proxy writes them, and later
// an agent.
type besideStage struct {
	*network
	node     *node
	accepted chan net.Conn
	talks    []talk
}

// listen has a pod accept connections.
func (s *besideStage) listen(pod *host) {
	s.tb.Helper()
	pod.do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err := config.Listen(context.Background(), "tcp", ":8080")
		if err != nil {
			return err
		}
		s.tb.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				s.accepted <- conn
			}
		}()
		return nil
	})
}

// open opens a connection that is held.
func (s *besideStage) open(who string, from *host, to netip.AddrPort) talk {
	s.tb.Helper()
	client, err := from.dial("tcp", to)
	if err != nil {
		s.tb.Fatalf("%s to %s: %v", who, to, err)
	}
	s.tb.Cleanup(func() { client.Close() })
	server := <-s.accepted
	s.tb.Cleanup(func() { server.Close() })
	return talk{name: fmt.Sprintf("%s to %s at %s", who, to, server.LocalAddr()), client: client, server: server}
}

// everywhere is where clients are.
func (s *besideStage) everywhere() map[string]*host {
	return map[string]*host{"a client outside": s.client, "a pod": s.node.guest, "the pod itself": s.node.pod, "the node": s.node.host}
}

// hold opens connections to an address from some clients.
func (s *besideStage) hold(to netip.AddrPort, from map[string]*host) {
	s.tb.Helper()
	for who, h := range from {
		k := s.open(who, h, to)
		for f := range families {
			for _, port := range []uint16{affine, hashed} {
				k.guessed = k.guessed || to == s.node.at(family(f), port) || to == clusterIPOf(family(f), int(port))
			}
		}
		s.talks = append(s.talks, k)
	}
}

// stands says whether both ends of a connection hear each other, the one that accepted first.
func (k talk) stands() error {
	for _, way := range [][2]net.Conn{{k.server, k.client}, {k.client, k.server}} {
		for _, end := range way {
			_ = end.SetDeadline(time.Now().Add(10 * time.Second))
		}
		if _, err := fmt.Fprintln(way[0], "hello"); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if _, err := bufio.NewReader(way[1]).ReadString('\n'); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// wantReset wants the client's next packet to be answered with a reset.
func (s *besideStage) wantReset(t *testing.T, k talk) {
	t.Helper()
	before := s.node.counter(t, "flow_reset")
	_ = k.client.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := fmt.Fprintln(k.client, "hello")
	if err == nil {
		_, err = k.client.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s, which nobody knows any more: %v, want a reset", k.name, err)
	}
	if s.node.counter(t, "flow_reset") == before {
		t.Errorf("%s: the reset is not the agent's", k.name)
	}
}

// allStand wants every connection to stand, and no packet of theirs to be taken for lost.
func (s *besideStage) allStand(t *testing.T, after string) {
	t.Helper()
	for _, k := range s.talks {
		if err := k.stands(); err != nil {
			t.Errorf("%s: %v", after, err)
		}
	}
	if drops := s.node.status(t).Drops["no_flow"]; drops != 0 {
		t.Errorf("%s: %d packets count as lost", after, drops)
	}
}

// ours wants a new connection to be one of the agent's.
func (s *besideStage) ours(t *testing.T, f family) {
	t.Helper()
	before := s.node.counter(t, "flow_made")
	if err := s.open("a new client", s.client, s.node.at(f, affine)).stands(); err != nil {
		t.Error(err)
	}
	if s.node.counter(t, "flow_made") == before {
		t.Error("a new connection has no flow")
	}
}

// clusterIPOf is that of the Service with a NodePort.
func clusterIPOf(f family, nodePort int) netip.AddrPort {
	return netip.MustParseAddrPort(fmt.Sprintf([]string{"10.96.0.%d:80", "[fd00:10:96::%d]:80"}[f], nodePort%10))
}

// proxyRules are rules by one of the tools of kube-proxy.
type proxyRules struct {
	name       string
	write      func(s *besideStage, services []rules.Service, local netip.Prefix)
	unhook     func(s *besideStage, f family)
	masquerade bool // clients outside; else they keep their address, and backends are on the node
}

// execute runs a program on a machine, which has to succeed.
func (h *host) execute(stdin, name string, args ...string) {
	h.tb.Helper()
	h.do(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
		}
		return nil
	})
}

func writeNFTables(s *besideStage, services []rules.Service, local netip.Prefix) {
	s.tb.Helper()
	for _, transaction := range rules.NFTables(services, local) {
		s.node.execute(transaction, "nft", "-f", "-")
	}
}

func deleteNFTables(s *besideStage, f family) {
	s.tb.Helper()
	s.node.execute("", "nft", "delete", "table", []string{"ip", "ip6"}[f], "headgate-bench")
}

func writeIPTables(s *besideStage, services []rules.Service, local netip.Prefix) {
	s.tb.Helper()
	f := family(0)
	if local.Addr().Is6() {
		f = 1
	}
	s.node.execute(rules.IPTables(services, local), iptables(f)+"-restore", "-w")
}

func deleteIPTables(s *besideStage, f family) {
	s.tb.Helper()
	s.node.execute(`*nat
-D PREROUTING -j HG-SERVICES
-D OUTPUT -j HG-SERVICES
-D POSTROUTING -j HG-POST
COMMIT
`, iptables(f)+"-restore", "-w", "-n")
}

func iptables(f family) string { return []string{"iptables", "ip6tables"}[f] }

// services are those that rules balance in a family.
func (r proxyRules) services(n *node, f family) (all []rules.Service) {
	for _, port := range []uint16{onNode1, onNode2, affine, hashed} {
		backend := netip.AddrPortFrom([2]netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::10")}[f], 8080)
		if port == onNode2 {
			if !r.masquerade {
				continue
			}
			backend = netip.AddrPortFrom([2]netip.Addr{netip.MustParseAddr("10.244.2.10"), netip.MustParseAddr("fd00:10:244:2::10")}[f], 8080)
			all = append(all, rules.Service{Protocol: "tcp", Addr: netip.AddrPortFrom(loadBalancer[f], 80), Endpoints: []netip.AddrPort{backend}})
		}
		for _, at := range []netip.AddrPort{n.at(f, port), clusterIPOf(f, int(port))} {
			all = append(all, rules.Service{Protocol: "tcp", Addr: at, Endpoints: []netip.AddrPort{backend}})
		}
	}
	return all
}

// TestConnectionsThroughKubeProxyStand has connections stand by rules such as kube-proxy's,
// from outside, pods and the node, and then an agent start, be replaced, and lose the
// endpoints. The rules go. Nothing is reset but what the kernel does not track any more.
func TestConnectionsThroughKubeProxyStand(t *testing.T) {
	for _, r := range []proxyRules{
		{"nftables, masquerading", writeNFTables, deleteNFTables, true},
		{"nftables, clients' addresses stay", writeNFTables, deleteNFTables, false},
		{"iptables, masquerading", writeIPTables, deleteIPTables, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			tool, _, _ := strings.Cut(strings.Replace(r.name, "nftables", "nft", 1), ",")
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("needs %s: apt-get install nftables iptables", tool)
			}
			r.connectionsStand(t)
		})
	}
}

func (r proxyRules) connectionsStand(t *testing.T) {
	s := newBesideStage(t)
	s.balanceBy(r)
	s.startBeside(t)
	for range 8 { // one of them has affinity to the other pod
		for _, f := range families {
			s.ours(t, f)
		}
	}
	s.allStand(t, "beside an agent")
	if s.node.counter(t, "flow_tracked") == 0 {
		t.Error("no packet was left to the kernel")
	}
	s.upgrade(t)
	s.allStand(t, "after an upgrade")
	s.withdrawPod1(t)
	s.allStand(t, "without endpoints")
	for _, f := range families {
		r.unhook(s, f)
	}
	s.allStand(t, "without the rules")

	s.node.do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	for _, k := range s.talks {
		if strings.HasPrefix(k.name, "a client outside") && !k.guessed {
			s.wantReset(t, k)
		}
	}
}

// balanceBy has rules balance, and opens connections by them.
func (s *besideStage) balanceBy(r proxyRules) {
	s.tb.Helper()
	local := map[bool][2]netip.Prefix{
		true:  {netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		false: {netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:c::/64")}, // the client's
	}[r.masquerade]
	for _, f := range families {
		r.write(s, r.services(s.node, f), local[f])
	}
	s.node.cniFirewall() // without NAT of others the kernel translates nothing once the rules go
	for _, f := range families {
		for _, service := range r.services(s.node, f) {
			s.hold(service.Addr, s.everywhere())
		}
	}
}

// startBeside starts an agent where rules balance, with some flags.
func (s *besideStage) startBeside(t *testing.T, flags ...string) {
	t.Helper()
	s.write("services.yaml", besideObjects)
	s.write("pods.yaml", s.podObjects(""))
	s.node.options = append([]string{"--pod-devices", "all"}, flags...)
	s.startAgentOf(s.node, testenv.BPFRoot(t), frontendCount+2*4*2)
	s.node.awaitBalance(s.devices)
	s.node.awaitPods(2)
}

// upgrade has another agent replace the programs.
func (s *besideStage) upgrade(t *testing.T) {
	t.Helper()
	object := s.node.status(t).Object
	s.node.stop()
	s.node.options = append(s.node.options, "--flows", "131072")
	s.node.startAgent(s.manifests)
	eventually(t, "another agent has replaced the programs", func() error {
		if s.node.status(t).Object == object {
			return fmt.Errorf("the object is still %s", object)
		}
		return nil
	})
}

// withdrawPod1 takes pod 1 from its Services: one has no endpoint then.
func (s *besideStage) withdrawPod1(t *testing.T) {
	t.Helper()
	s.write("services.yaml", strings.NewReplacer(`["10.244.1.10"]`, `["10.244.1.10"], conditions: {ready: false}`,
		`["fd00:10:244:1::10"]`, `["fd00:10:244:1::10"], conditions: {ready: false}`).Replace(besideObjects))
	for _, f := range families {
		eventually(t, "the Service has no endpoint", func() error {
			conn, err := s.client.dial("tcp", s.node.at(f, onNode1))
			if err == nil {
				conn.Close()
				(<-s.accepted).Close()
				return errors.New("a new connection is taken")
			}
			return nil
		})
	}
}

// besideObjects are the Services, those that only this test has among them.
var besideObjects = services + service("affine", affine, "  sessionAffinity: ClientIP\n", "1", "2") +
	strings.Replace(service("hashed", hashed, "", "1", "2"), "namespace: default}", `namespace: default, annotations: {"headgate.dev/algorithm": "maglev"}}`, 1)

func newBesideStage(t *testing.T) *besideStage {
	n := newNetwork(t, false)
	n.router.route("10.96.0.0/16", "192.0.2.1") // a ClusterIP from outside
	n.router.route("fd00:10:96::/112", "2001:db8::1")
	s := &besideStage{network: n, node: n.nodes[0], accepted: make(chan net.Conn)}
	for _, node := range n.nodes {
		s.listen(node.pod)
	}
	return s
}
