package network

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// asHeadgate makes this binary behave as headgate.
const asHeadgate = "HEADGATE_TEST_AS_HEADGATE"

func TestMain(m *testing.M) {
	if os.Getenv(asHeadgate) != "" {
		os.Exit(cli.Run(os.Args[1:], "test", os.Stdout, os.Stderr))
	}
	os.Exit(testenv.Main(m))
}

// network is all machines with what runs on them.
type network struct {
	tb                  testing.TB
	client, far, router *host
	nodes               [2]*node
	manifests           string
	devices             int // of each node, with programs
}

// node is a machine with an agent and one pod.
type node struct {
	*host
	number      int
	name        string
	pod         *host
	root        string // of BPF pins
	cgroup      *traffic.Cgroup
	agent       *exec.Cmd
	addr, addr6 netip.Addr    // on the uplink
	snat        [2]netip.Addr // what a pod on another node sees of its clients
}

// family is 0 for IPv4, 1 for IPv6.
type family int

var families = []family{0, 1}

func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

var clientAddr = [2]netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:c::7")}

// newNetwork makes the network; tunnel says whether the way between the pods
// is VXLAN. Then the nodes have to compute checksums, too.
func newNetwork(tb testing.TB, tunnel bool) *network {
	tb.Helper()
	testenv.Need(tb)
	n := &network{tb: tb, client: newHost(tb, "client"), far: newHost(tb, "far"), router: newHost(tb, "router"), manifests: tb.TempDir()}
	plug(n.client, "eth0", n.far, "near", 1500)
	n.client.address("eth0", "198.51.100.7/24", "2001:db8:c::7/64")
	n.far.address("near", "198.51.100.1/24", "2001:db8:c::1/64")
	plug(n.far, "up", n.router, "down", 1400)
	n.far.address("up", "198.18.0.1/24", "2001:db8:18::1/64")
	n.router.address("down", "198.18.0.2/24", "2001:db8:18::2/64")
	for i := range n.nodes {
		n.nodes[i] = n.newNode(i+1, tunnel)
	}
	n.router.bridge("br0", "node-1", "node-2")
	n.router.address("br0", "192.0.2.254/24", "2001:db8::fe/64")
	for _, r := range []struct {
		h      *host
		v4, v6 string
	}{{n.client, "198.51.100.1", "2001:db8:c::1"}, {n.far, "198.18.0.2", "2001:db8:18::2"}} {
		r.h.route("0.0.0.0/0", r.v4)
		r.h.route("::/0", r.v6)
	}
	n.router.route("198.51.100.0/24", "198.18.0.1")
	n.router.route("2001:db8:c::/64", "2001:db8:18::1")
	n.router.route("203.0.113.0/24", "192.0.2.1") // as announced by a load balancer
	n.router.route("2001:db8:f::/64", "2001:db8::1")
	for _, node := range n.nodes {
		node.connect(n.nodes[2-node.number], tunnel)
	}
	n.devices = 1
	if tunnel {
		n.devices = 2
		for _, node := range n.nodes {
			node.sumHere("eth0")
			node.sumHere("pod0")
			node.sumHere("vx0")
		}
	}
	return n
}

// newNode makes a node with its pod.
func (n *network) newNode(number int, tunnel bool) *node {
	n.tb.Helper()
	name := fmt.Sprintf("node-%d", number)
	node := &node{
		host: newHost(n.tb, name), number: number, name: name, pod: newHost(n.tb, fmt.Sprintf("pod-%d", number)),
		addr: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", number)), addr6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", number)),
	}
	node.snat = [2]netip.Addr{node.addr, node.addr6}
	if tunnel {
		node.snat = [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf("172.31.0.%d", number)), netip.MustParseAddr(fmt.Sprintf("fd00:31::%d", number))}
	}
	plug(n.router, name, node.host, "eth0", 1500)
	node.address("eth0", node.addr.String()+"/24", node.addr6.String()+"/64")
	node.route("0.0.0.0/0", "192.0.2.254")
	node.route("::/0", "2001:db8::fe")
	plug(node.host, "pod0", node.pod, "eth0", 1500)
	node.address("pod0", fmt.Sprintf("10.244.%d.1/24", number), fmt.Sprintf("fd00:10:244:%d::1/64", number))
	node.pod.address("eth0", fmt.Sprintf("10.244.%d.10/24", number), fmt.Sprintf("fd00:10:244:%d::10/64", number))
	node.pod.route("0.0.0.0/0", fmt.Sprintf("10.244.%d.1", number))
	node.pod.route("::/0", fmt.Sprintf("fd00:10:244:%d::1", number))
	return node
}

// connect makes the way from a node to the pods of the other.
func (n *node) connect(other *node, tunnel bool) {
	n.tb.Helper()
	via, via6 := other.addr.String(), other.addr6.String()
	if tunnel {
		n.vxlan("vx0", n.addr.String(), via)
		n.address("vx0", n.snat[0].String()+"/24", n.snat[1].String()+"/64")
		via, via6 = other.snat[0].String(), other.snat[1].String()
	}
	n.route(fmt.Sprintf("10.244.%d.0/24", other.number), via)
	n.route(fmt.Sprintf("fd00:10:244:%d::/64", other.number), via6)
}

// startAgents starts an agent on each node and waits until they are done.
func (n *network) startAgents() {
	n.tb.Helper()
	n.write("services.yaml", services)
	root := testenv.BPFRoot(n.tb)
	for _, node := range n.nodes {
		node.root = filepath.Join(root, node.name)
		cgroup, err := traffic.NewCgroup(testenv.Cgroup(n.tb), node.name)
		if err != nil {
			n.tb.Fatal(err)
		}
		node.cgroup = cgroup
		n.tb.Cleanup(func() {
			node.stop()
			if err := cgroup.Close(); err != nil {
				n.tb.Error(err)
			}
		})
		node.startAgent(n.manifests)
	}
	for _, node := range n.nodes {
		node.awaitBalance(n.devices)
	}
}

func (n *network) write(name, text string) {
	n.tb.Helper()
	if err := os.WriteFile(filepath.Join(n.manifests, name), []byte(text), 0o644); err != nil {
		n.tb.Fatal(err)
	}
}

// startAgent starts the agent of a node.
func (n *node) startAgent(manifests string) {
	n.tb.Helper()
	n.agent = exec.Command("/proc/self/exe", "--bpf-root", n.root, "agent", "--manifests", manifests, "--node-name", n.name,
		"--cgroup", n.cgroup.Path, "--devices", "eth*,vx0", "--promises", "1024", "--log-level", "warn")
	n.agent.Env = append(os.Environ(), asHeadgate+"=1")
	n.agent.Stdout, n.agent.Stderr = os.Stderr, os.Stderr
	if err := n.Start(n.agent); err != nil {
		n.tb.Fatal(err)
	}
}

// stop kills the agent, which leaves everything in force.
func (n *node) stop() {
	if n.agent == nil {
		return
	}
	_ = n.agent.Process.Kill()
	_ = n.agent.Wait()
	n.agent = nil
}

// awaitBalance waits until the node balances every Service, on all devices.
func (n *node) awaitBalance(devices int) {
	n.tb.Helper()
	eventually(n.tb, n.name+" balances", func() error {
		attached, err := filepath.Glob(filepath.Join(n.root, "links", "device_in_*"))
		if err != nil || len(attached) != devices {
			return fmt.Errorf("attached are %v, want %d", attached, devices)
		}
		i, err := datapath.Inspect(n.root)
		if err != nil {
			return err
		}
		defer i.Close()
		c, err := i.Content()
		if err != nil {
			return err
		}
		if len(c.Frontends) != frontendCount || len(c.Backends) == 0 {
			return fmt.Errorf("%d frontends, want %d", len(c.Frontends), frontendCount)
		}
		return nil
	})
}

// eventually waits until nothing is wrong any more.
func eventually(tb testing.TB, what string, wrong func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = wrong(); err == nil {
			return
		}
	}
	tb.Fatalf("%s: %v", what, err)
}
