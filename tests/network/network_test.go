package network

import (
	"fmt"
	"io"
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
	if question := os.Getenv(asClient); question != "" {
		askHere(question)
		return
	}
	if os.Getenv(asHolder) != "" {
		holdHere()
		return
	}
	if addrs := os.Getenv(asTwin); addrs != "" {
		twinHere(addrs)
		return
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

// node is a machine with an agent and two pods, of which one serves.
type node struct {
	*host
	number      int
	name        string
	pods        *host  // leads to its pods: mostly the node
	pod         *host  // serves
	guest       *host  // does not
	root        string // of BPF pins
	cgroup      *traffic.Cgroup
	agent       *exec.Cmd
	program     string        // of another version, as which the agent is started, "" for this one
	frontends   int           // that it has when it balances
	options     []string      // of the agent, beside the usual ones
	chooses     bool          // the agent chooses its devices
	log         io.Writer     // of the agent, nil for stderr
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
	return newNetworkOf(tb, layout{tunnel: tunnel})
}

// layout is what a CNI decides.
type layout struct {
	tunnel bool // the way between the nodes' pods is VXLAN
	bridge bool // the pods of a node are behind a bridge
	hub    bool // they are behind another machine
}

func newNetworkOf(tb testing.TB, l layout) *network {
	tb.Helper()
	tunnel := l.tunnel
	testenv.Need(tb)
	n := &network{tb: tb, manifests: tb.TempDir()}
	n.client, n.far, n.router = newWay(tb, 1400)
	for i := range n.nodes {
		n.nodes[i] = n.newNode(i+1, l)
	}
	n.router.bridge("br0", "node-1", "node-2")
	n.router.address("br0", "192.0.2.254/24", "2001:db8::fe/64")
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
			node.sumHere("pod1")
			node.sumHere("vx0")
		}
	}
	return n
}

// newWay makes a client, a router, and a machine between them; mtu is that of its leg to the router.
func newWay(tb testing.TB, mtu int) (client, far, router *host) {
	tb.Helper()
	client, far, router = newHost(tb, "client"), newHost(tb, "far"), newHost(tb, "router")
	plug(client, "eth0", far, "near", 1500)
	client.address("eth0", "198.51.100.7/24", "2001:db8:c::7/64")
	far.address("near", "198.51.100.1/24", "2001:db8:c::1/64")
	plug(far, "up", router, "down", mtu)
	far.address("up", "198.18.0.1/24", "2001:db8:18::1/64")
	router.address("down", "198.18.0.2/24", "2001:db8:18::2/64")
	for _, r := range []struct {
		from   *host
		v4, v6 string
	}{{client, "198.51.100.1", "2001:db8:c::1"}, {far, "198.18.0.2", "2001:db8:18::2"}} {
		r.from.route("0.0.0.0/0", r.v4)
		r.from.route("::/0", r.v6)
	}
	router.route("198.51.100.0/24", "198.18.0.1")
	router.route("2001:db8:c::/64", "2001:db8:18::1")
	return client, far, router
}

// newNode makes a node with its pod.
func (n *network) newNode(number int, l layout) *node {
	n.tb.Helper()
	name := fmt.Sprintf("node-%d", number)
	node := &node{
		host: newHost(n.tb, name), number: number, name: name, pod: newHost(n.tb, fmt.Sprintf("pod-%d", number)), guest: newHost(n.tb, fmt.Sprintf("guest-%d", number)),
		addr: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", number)), addr6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", number)),
	}
	node.snat = [2]netip.Addr{node.addr, node.addr6}
	if l.tunnel {
		node.snat = [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf("172.31.0.%d", number)), netip.MustParseAddr(fmt.Sprintf("fd00:31::%d", number))}
	}
	plug(n.router, name, node.host, "eth0", 1500)
	node.address("eth0", node.addr.String()+"/24", node.addr6.String()+"/64")
	node.route("0.0.0.0/0", "192.0.2.254")
	node.route("::/0", "2001:db8::fe")
	if node.pods = node.host; l.hub {
		node.pods = newHost(n.tb, fmt.Sprintf("hub-%d", number))
	}
	plug(node.pods, "pod0", node.pod, "eth0", 1500)
	plug(node.pods, "pod1", node.guest, "eth0", 1500)
	node.addPods(l.bridge)
	return node
}

// addPods gives the pods addresses, and the node the way to them: by a bridge, or
// by a route to each.
func (n *node) addPods(bridge bool) {
	n.tb.Helper()
	gateways := []string{fmt.Sprintf("10.244.%d.1", n.number), fmt.Sprintf("fd00:10:244:%d::1", n.number)}
	if bridge {
		n.pods.bridge("cni0", "pod0", "pod1")
		n.pods.address("cni0", gateways[0]+"/24", gateways[1]+"/64")
	} else {
		for _, device := range []string{"pod0", "pod1"} { // neighbours ask for it on their own
			n.pods.address(device, gateways[0]+"/32", gateways[1]+"/128")
		}
	}
	for i, pod := range []*host{n.pod, n.guest} {
		bits := map[bool][2]string{true: {"/24", "/64"}, false: {"/32", "/128"}}[bridge]
		for f, addr := range n.podAddrs(pod) {
			pod.address("eth0", addr.String()+bits[f])
			if !bridge {
				device := fmt.Sprintf("pod%d", i)
				n.pods.link(device, netip.PrefixFrom(addr, addr.BitLen()).String())
				pod.link("eth0", gateways[f]+bits[f])
			}
			pod.route([]string{"0.0.0.0/0", "::/0"}[f], gateways[f])
		}
	}
}

// podAddrs are the addresses of a pod of the node.
func (n *node) podAddrs(pod *host) [2]netip.Addr {
	last := 10
	if pod == n.guest {
		last = 20
	}
	return [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", n.number, last)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", n.number, last))}
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
	n.startAgentsWith(services, frontendCount)
}

// startAgentsWith does so with other objects, which make so many frontends.
func (n *network) startAgentsWith(objects string, frontends int) {
	n.tb.Helper()
	n.write("services.yaml", objects)
	root := testenv.BPFRoot(n.tb)
	for _, node := range n.nodes {
		n.startAgentOf(node, root, frontends)
	}
	for _, node := range n.nodes {
		node.awaitBalance(n.devices)
	}
}

// startAgentOf starts the agent of a node that had none yet.
func (n *network) startAgentOf(node *node, root string, frontends int) {
	n.tb.Helper()
	node.frontends = frontends
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
		"--cgroup", n.cgroup.Path, "--socket-entries", "1024", "--log-level", "warn")
	if !n.chooses {
		n.agent.Args = append(n.agent.Args, "--devices", "eth*,vx0,tun*")
	}
	if n.program != "" {
		n.agent.Path = n.program
	}
	n.agent.Args = append(n.agent.Args, n.options...)
	n.agent.Env = append(os.Environ(), asHeadgate+"=1")
	n.agent.Stdout, n.agent.Stderr = os.Stderr, os.Stderr
	if n.log != nil {
		n.agent.Stderr = n.log
	}
	if err := n.Start(n.agent); err != nil {
		n.tb.Fatal(err)
	}
}

// writeHashKey writes a key of hashes that several nodes have, and returns its path.
func writeHashKey(tb testing.TB) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "hash-key")
	if err := os.WriteFile(file, []byte("the same at all nodes, and long enough"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
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
		attached, err := filepath.Glob(filepath.Join(n.root, "links", "[dl][e3]*_in_*"))
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
		if len(c.Frontends) != n.frontends || len(c.Backends) == 0 {
			return fmt.Errorf("%d frontends, want %d", len(c.Frontends), n.frontends)
		}
		return nil
	})
}

// awaitPods waits until so many pods have programs on their devices.
func (n *node) awaitPods(pods int) {
	n.tb.Helper()
	eventually(n.tb, n.name+" finds its pods", func() error {
		attached, err := filepath.Glob(filepath.Join(n.root, "links", "pod_in_*"))
		if err != nil || len(attached) != pods {
			return fmt.Errorf("attached are %v, want %d", attached, pods)
		}
		return nil
	})
}

// eventually waits until nothing is wrong any more.
func eventually(tb testing.TB, what string, wrong func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = wrong(); err == nil {
			return
		}
	}
	tb.Fatalf("%s: %v", what, err)
}
