package network

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// fabric is three nodes with a pod each, behind a router that spreads what is for the address of
// a Service over some of them, by the ports, as one that is told by BGP.
type fabric struct {
	tb             testing.TB
	client, router *host
	nodes          [3]*node
	pods           [3]*host
	manifests      string
	forwarding     string
	forgetful      bool          // slots do not know what they named before
	pause          time.Duration // of a flow between two questions
}

var carriedAt = netip.MustParseAddrPort("203.0.113.10:80")

func newFabric(tb testing.TB, forwarding string) *fabric {
	tb.Helper()
	testenv.Need(tb)
	f := &fabric{tb: tb, client: newHost(tb, "client"), router: newHost(tb, "router"), manifests: tb.TempDir(), forwarding: forwarding, pause: 100 * time.Millisecond}
	plug(f.client, "eth0", f.router, "down", 1500)
	f.client.address("eth0", "198.51.100.7/24")
	f.router.address("down", "198.51.100.1/24")
	f.client.route("0.0.0.0/0", "198.51.100.1")
	var ports []string
	for i := range f.nodes {
		name := fmt.Sprint("node-", i+1)
		n := &node{host: newHost(tb, name), number: i + 1, name: name, addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}
		plug(f.router, name, n.host, "eth0", 1500)
		n.address("eth0", n.addr.String()+"/24")
		n.route("0.0.0.0/0", "192.0.2.254")
		pod, gateway := newHost(tb, fmt.Sprint("pod-", i+1)), fmt.Sprintf("10.244.%d.1", i+1)
		plug(n.host, "pod0", pod, "eth0", 1500)
		n.address("pod0", gateway+"/24")
		pod.address("eth0", fmt.Sprintf("10.244.%d.10/24", i+1))
		pod.route("0.0.0.0/0", gateway)
		pod.serveAs(fmt.Sprint("pod-", i+1))
		f.nodes[i], f.pods[i], ports = n, pod, append(ports, name)
	}
	f.router.bridge("br0", ports...)
	f.router.address("br0", "192.0.2.254/24")
	for _, n := range f.nodes {
		for _, other := range f.nodes {
			if other != n {
				n.route(fmt.Sprintf("10.244.%d.0/24", other.number), other.addr.String())
			}
		}
	}
	f.router.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0) // ports count
	})
	return f
}

// announce has the router send what is for the Service to some nodes, by number.
func (f *fabric) announce(nodes []int) {
	f.tb.Helper()
	route := &netlink.Route{Dst: ipNet(netip.PrefixFrom(carriedAt.Addr(), 32))}
	for _, n := range nodes {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: net.IP(f.nodes[n].addr.AsSlice())})
	}
	f.router.do(func() error { return netlink.RouteReplace(route) })
}

// endpoints says which pods take connections; the others drain.
func (f *fabric) endpoints(ready []int) {
	f.tb.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {headgate.dev/forwarding: %s}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4],
  ports: [{name: tcp, port: 80, protocol: TCP, targetPort: 8080}, {name: udp, port: 80, protocol: UDP, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: %s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}]
endpoints:
`, f.forwarding, carriedAt.Addr())
	for i := range f.pods {
		is := slices.Contains(ready, i)
		fmt.Fprintf(&text, "- {addresses: [10.244.%d.10], nodeName: node-%d, conditions: {ready: %v, serving: true, terminating: %v}}\n", i+1, i+1, is, !is)
	}
	for _, n := range f.nodes {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: %s}]}\n", n.name, n.addr)
	}
	next := filepath.Join(f.tb.TempDir(), "web.yaml")
	if err := os.WriteFile(next, []byte(text.String()), 0o600); err != nil {
		f.tb.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(f.manifests, "web.yaml")); err != nil {
		f.tb.Fatal(err)
	}
}

// start starts the agents, and waits until they balance.
func (f *fabric) start() {
	f.tb.Helper()
	root := testenv.BPFRoot(f.tb)
	for _, n := range f.nodes {
		n.root, n.options = filepath.Join(root, n.name), []string{"--forwarding", "marked", "--state-dir", f.tb.TempDir()}
		cgroup, err := traffic.NewCgroup(testenv.Cgroup(f.tb), n.name)
		if err != nil {
			f.tb.Fatal(err)
		}
		n.cgroup = cgroup
		f.tb.Cleanup(func() {
			n.stop()
			if err := cgroup.Close(); err != nil {
				f.tb.Error(err)
			}
		})
		n.frontends = 4
		n.startAgent(f.manifests)
	}
	for _, n := range f.nodes {
		f.awaitPrograms(n)
	}
}

// awaitPrograms waits until a node balances. Three agents load programs at once, which takes a
// busy machine its time.
func (f *fabric) awaitPrograms(n *node) {
	f.tb.Helper()
	links := filepath.Join(n.root, "links", "device_in_*")
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if attached, err := filepath.Glob(links); err == nil && len(attached) == 1 {
			break
		}
	}
	n.awaitBalance(1)
}

// outcome is what became of connections.
type outcome struct {
	mu                             sync.Mutex
	answered, reset, stuck, failed int
	moved                          int // answered by another pod than before
	hidden                         int // answered by a pod that did not see the client's address
	missing                        int // datagrams without an answer
	began                          time.Time
	broken                         []time.Duration // since then, one for each flow that broke
}

func (o *outcome) String() string {
	return fmt.Sprintf("%d answers, %d datagrams without one, of flows: %d reset, %d stuck, %d failed otherwise, %d at another backend, %d with a hidden client", o.answered, o.missing, o.reset, o.stuck, o.failed, o.moved, o.hidden)
}

// stuckAfter is how long an answer may take: TCP sends again meanwhile.
const stuckAfter = 30 * time.Second

// converse asks over one connection until it is told to end, and notes what happens.
func (o *outcome) converse(conn net.Conn, pause time.Duration, end <-chan struct{}) {
	defer conn.Close()
	r, first := bufio.NewReader(conn), ""
	for {
		_ = conn.SetDeadline(time.Now().Add(stuckAfter))
		_, err := fmt.Fprintln(conn, "who")
		line := ""
		if err == nil {
			line, err = r.ReadString('\n')
		}
		if !o.note(line, &first, err) {
			return
		}
		select {
		case <-end:
			return
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// missingMost is how many datagrams in a row may have no answer, each of them for a second.
const missingMost = 10

// send does so by datagrams with sequence numbers, of which some may be lost.
func (o *outcome) send(conn net.Conn, pause time.Duration, end <-chan struct{}) {
	defer conn.Close()
	first, missing := "", 0
	for number := 0; ; number++ {
		said, err := askNumbered(conn, fmt.Sprint("number ", number))
		if missing++; err == nil {
			missing = 0
		}
		switch {
		case err == nil || missing == missingMost:
			if !o.note(said, &first, err) {
				return
			}
		default:
			o.mu.Lock()
			o.missing++
			o.mu.Unlock()
		}
		select {
		case <-end:
			return
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// askNumbered sends a datagram, and returns what a server puts before it in the answer.
func askNumbered(conn net.Conn, payload string) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(payload)); err != nil {
		return "", err
	}
	for b := make([]byte, 256); ; {
		n, err := conn.Read(b)
		if err != nil {
			return "", err
		}
		if said, is := strings.CutSuffix(string(b[:n]), " "+payload); is { // others are late
			return said + "\n", nil
		}
	}
}

// begin notes that changes begin, while connections are under way.
func (o *outcome) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = time.Now()
}

// note says whether the connection goes on.
func (o *outcome) note(line string, first *string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || *first != "" && line != *first {
		o.broken = append(o.broken, time.Since(o.began))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.stuck++
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		o.reset++
	case err != nil:
		o.failed++
	case *first == "" && !strings.HasSuffix(line, " "+clientAddr[0].String()+"\n"):
		o.hidden++
		fallthrough
	default:
		if o.answered++; *first != "" && line != *first {
			o.moved++
			return false
		}
		*first = line
		return true
	}
	return false
}

// story is connections and flows of datagrams while backends come and drain, the router chooses other nodes, both once
// a second, and agents are killed and come again.
func (f *fabric) story(connections, datagrams, seconds int, rng *rand.Rand) *outcome {
	f.tb.Helper()
	f.endpoints([]int{0, 1, 2})
	f.announce([]int{0, 1, 2})
	f.start()
	o, end := &outcome{}, make(chan struct{})
	var all sync.WaitGroup
	for i, conn := range f.begin(connections, datagrams) {
		talk := o.converse
		if i >= connections {
			talk = o.send
		}
		all.Go(func() { talk(conn, f.pause, end) })
	}
	if f.forgetful {
		all.Go(func() { f.forgetOwners(end) })
	}
	time.Sleep(2 * f.pause) // all have asked
	o.begin()
	for second := range seconds {
		time.Sleep(time.Second)
		f.endpoints(some(rng))
		f.announce(some(rng))
		switch n := f.nodes[rng.IntN(len(f.nodes))]; {
		case n.agent == nil:
			n.startAgent(f.manifests)
		case second%3 == 0:
			n.stop()
		}
	}
	time.Sleep(2 * time.Second)
	close(end)
	all.Wait()
	return o
}

// some returns one to three of three, in order.
func some(rng *rand.Rand) []int {
	all := rng.Perm(3)[:1+rng.IntN(3)]
	slices.Sort(all)
	return all
}

// No connection is lost, whichever backends there are and whichever nodes packets come in at; by
// SNAT those are lost whose node changes.
func TestNoCarriedConnectionIsLost(t *testing.T) {
	for _, forwarding := range []string{"dsr", "snat"} {
		t.Run(forwarding, func(t *testing.T) {
			f := newFabric(t, forwarding)
			o := f.story(60, 20, 20, rand.New(rand.NewPCG(1, 1)))
			t.Log(o)
			lost := o.reset + o.stuck + o.failed + o.moved
			switch {
			case forwarding == "dsr" && (lost > 0 || o.hidden > 0):
				t.Errorf("%s; want none of these", o)
			case forwarding == "snat" && lost == 0:
				t.Errorf("%s; the story is harmless", o)
			}
		})
	}
}
