package network

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// edges is two load balancers of their own behind a router that spreads by ports, and three
// backends.
type edges struct {
	tb             testing.TB
	client, router *host
	nodes          [2]*node
	backends       [3]*host
	homes          []*node // the backends, where each has an agent
	manifests      string
	at             netip.AddrPort // of the Service
	annotations    string         // of the Service, more of them
	options        []string       // of the agents, more of them
}

// edgeAt is the Service; a backend outside has its port.
var edgeAt = netip.MustParseAddrPort("203.0.113.10:8080")

// newEdges makes edges before backends on which no agent runs: they take the outer header off as
// docs/edge.md says.
func newEdges(tb testing.TB) *edges {
	tb.Helper()
	e := newEdgesBefore(tb)
	for _, b := range e.backends {
		b.uncover()
	}
	return e
}

// newEdgesBefore makes edges before backends that serve, and take nothing that is carried.
func newEdgesBefore(tb testing.TB) *edges {
	tb.Helper()
	testenv.Need(tb)
	e := &edges{tb: tb, client: newHost(tb, "client"), router: newHost(tb, "router"), manifests: tb.TempDir(), at: edgeAt}
	plug(e.client, "eth0", e.router, "down", 1500)
	e.client.address("eth0", clientAddr[0].String()+"/24")
	e.router.address("down", "198.51.100.1/24")
	e.client.route("0.0.0.0/0", "198.51.100.1")
	e.client.sumHere("eth0") // what leaves the kernel, to a tunnel in a process, needs its checksum
	var ports []string
	add := func(name, addr string) *host {
		h := newHost(tb, name)
		plug(e.router, name, h, "eth0", 1500)
		h.address("eth0", addr+"/24")
		h.route("0.0.0.0/0", "192.0.2.254")
		ports = append(ports, name)
		return h
	}
	for i := range e.nodes {
		name, addr := fmt.Sprint("edge-", i+1), fmt.Sprint("192.0.2.", i+1)
		e.nodes[i] = newEdgeNode(add(name, addr), name, addr)
	}
	for i := range e.backends {
		e.backends[i] = add(fmt.Sprint("backend-", i+1), backendAddr(i))
		e.backends[i].serveAs(fmt.Sprint("backend-", i+1))
	}
	e.router.bridge("br0", ports...)
	e.router.address("br0", "192.0.2.254/24")
	e.router.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0) // ports count
	})
	return e
}

// newEdgeNode is a host that has an agent, and the two frontends of the Service.
func newEdgeNode(h *host, name, addr string) *node {
	return &node{host: h, name: name, addr: netip.MustParseAddr(addr), frontends: 2}
}

func backendAddr(i int) string { return fmt.Sprint("192.0.2.", 21+i) }

// uncover has a host take the outer header off packets for the Service, as the kernel's device
// ipip does where there is one: it is a module, which tests cannot count on.
func (h *host) uncover() {
	h.tb.Helper()
	device := h.tun("ipip0")
	h.address("ipip0", edgeAt.Addr().String()+"/32")
	h.filter("0", "all")
	h.filter("2", "ipip0")
	var raw *os.File
	h.do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_IPIP)
		if err != nil {
			return err
		}
		raw = os.NewFile(uintptr(fd), "ipip")
		return nil
	})
	h.tb.Cleanup(func() { raw.Close() })
	go func() {
		for b := make([]byte, 65536); ; {
			n, err := raw.Read(b)
			if err != nil {
				return
			}
			_, _ = device.Write(b[int(b[0]&15)*4 : n])
		}
	}()
}

// serves says which backends take connections; the others drain.
func (e *edges) serves(ready ...int) {
	e.tb.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {headgate.dev/forwarding: dsr%[3]s}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: %[1]d, targetPort: %[4]d}]}
status: {loadBalancer: {ingress: [{ip: %[2]s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: %[4]d}]
endpoints:
`, e.at.Port(), e.at.Addr(), e.annotations, edgeAt.Port())
	for i := range e.backends {
		is := slices.Contains(ready, i)
		fmt.Fprintf(&text, "- {addresses: [%s], conditions: {ready: %v, serving: true, terminating: %v}}\n", backendAddr(i), is, !is)
	}
	next := filepath.Join(e.tb.TempDir(), "web.yaml")
	if err := os.WriteFile(next, []byte(text.String()), 0o600); err != nil {
		e.tb.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(e.manifests, "web.yaml")); err != nil {
		e.tb.Fatal(err)
	}
}

// start starts the agents, and waits until both edges carry.
func (e *edges) start() {
	e.tb.Helper()
	key := writeHashKey(e.tb)
	for _, n := range slices.Concat(e.nodes[:], e.homes) {
		n.root = filepath.Join(testenv.BPFRoot(e.tb), n.name)
		n.options = []string{"--forwarding", "marked", "--hash-key-file", key, "--state-dir", e.tb.TempDir()}
		if !slices.Contains(e.homes, n) {
			n.options = append(n.options, "--dsr-encapsulation", "ipip") // for backends outside alone
		}
		n.options = append(n.options, e.options...)
		cgroup, err := traffic.NewCgroup(testenv.Cgroup(e.tb), n.name)
		if err != nil {
			e.tb.Fatal(err)
		}
		n.cgroup = cgroup
		e.tb.Cleanup(func() {
			n.stop()
			if err := cgroup.Close(); err != nil {
				e.tb.Error(err)
			}
		})
		n.startAgent(e.manifests)
	}
	for _, n := range e.homes {
		awaitDevice(n)
	}
	for i, n := range e.nodes {
		awaitDevice(n)
		e.announce(i)
		eventually(e.tb, n.name+" carries", func() error {
			said, err := e.client.ask("tcp", e.at)
			if err == nil && !strings.HasSuffix(strings.TrimSpace(said), " "+clientAddr[0].String()) {
				err = fmt.Errorf("a backend sees %q", said)
			}
			return err
		})
	}
}

// awaitDevice waits until a node has a program on its device: a busy machine takes its time.
func awaitDevice(n *node) {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if all, err := filepath.Glob(filepath.Join(n.root, "links", "device_in_*")); err == nil && len(all) == 1 {
			break
		}
	}
	n.awaitBalance(1)
}

// announce has the router send what is for the Service to some edges.
func (e *edges) announce(edges ...int) {
	e.tb.Helper()
	route := &netlink.Route{Dst: ipNet(netip.PrefixFrom(edgeAt.Addr(), 32))}
	for _, i := range edges {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: net.IP(e.nodes[i].addr.AsSlice())})
	}
	e.router.do(func() error { return netlink.RouteReplace(route) })
}

// kept returns how many connections an edge keeps.
func (e *edges) kept(edge int) (n int) {
	e.tb.Helper()
	i, err := datapath.Inspect(e.nodes[edge].root)
	if err != nil {
		e.tb.Fatal(err)
	}
	defer i.Close()
	if err := i.Flows(func(datapath.Flow) error { n++; return nil }); err != nil {
		e.tb.Fatal(err)
	}
	return n
}

// while has connections go on while something happens, and says what became of them.
func (e *edges) while(connections int, happens func()) *outcome {
	e.tb.Helper()
	o, end := &outcome{}, make(chan struct{})
	var all sync.WaitGroup
	for _, conn := range e.begin(connections) {
		all.Go(func() { o.converse(conn, 50*time.Millisecond, end) })
	}
	time.Sleep(300 * time.Millisecond) // all have asked
	o.begin()
	happens()
	time.Sleep(2 * time.Second)
	close(end)
	all.Wait()
	return o
}

// begin returns so many connections that began while edges carried to all homes: a node without a CPU for a
// second is given up by the others until it answers, and then all begin again.
func (e *edges) begin(connections int) (conns []net.Conn) {
	e.tb.Helper()
	for range 5 {
		eventually(e.tb, "edges carry to all backends", e.carries)
		conns = nil
		for range connections {
			conn, err := e.client.dial("tcp", e.at)
			if err != nil {
				e.tb.Fatal(err)
			}
			conns = append(conns, conn)
		}
		if e.carries() == nil {
			return conns
		}
		for _, conn := range conns {
			conn.Close()
		}
	}
	e.tb.Fatal("edges give homes up again and again")
	return nil
}

func (o *outcome) lost() int { return o.reset + o.stuck + o.failed + o.moved + o.hidden }

// Edges keep flows, so that backends change under connections; and agree without a word, so that
// an edge dies under them. What both together lose is said in docs/edge.md.
func TestEdgesBeforeBackendsWithoutAnAgent(t *testing.T) {
	const connections = 60
	e := newEdges(t)
	e.serves(0, 1, 2)
	e.start()
	e.announce(0, 1)
	dies := e.while(connections, func() {
		if a, b := e.kept(0), e.kept(1); a == 0 || b == 0 {
			t.Errorf("the edges keep %d and %d flows, want some at both", a, b)
		}
		e.dies(0)
	})
	dies.wantNoneLost(t, "an edge dies")
	e.comesBack(0)
	rng := rand.New(rand.NewPCG(1, 3))
	changes := e.while(connections, func() {
		for second := range 8 {
			e.serves(some(rng)...)
			time.Sleep(time.Second)
			switch n := e.nodes[second%2]; {
			case n.agent == nil:
				n.startAgent(e.manifests)
			case second%3 == 0:
				n.stop()
			}
		}
	})
	changes.wantNoneLost(t, "backends change, agents die and come again")
}

// dies kills an edge under what goes on; the router notices a little later.
func (e *edges) dies(edge int) {
	e.tb.Helper()
	time.Sleep(time.Second)
	e.nodes[edge].stop()
	e.nodes[edge].setUp("eth0", false)
	time.Sleep(300 * time.Millisecond)
	e.announce(1 - edge)
}

// comesBack starts an edge that died.
func (e *edges) comesBack(edge int) {
	e.tb.Helper()
	n := e.nodes[edge]
	n.setUp("eth0", true)
	n.route("0.0.0.0/0", "192.0.2.254")
	n.startAgent(e.manifests)
	awaitDevice(n)
	e.announce(0, 1)
}

func (o *outcome) wantNoneLost(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s: %s", what, o)
	if o.lost() > 0 {
		t.Errorf("%s: %s; want none lost", what, o)
	}
}

// setUp sets a device up or down.
func (h *host) setUp(device string, up bool) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}
