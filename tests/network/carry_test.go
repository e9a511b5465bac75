package network

import (
	"cmp"
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
	underlay       underlay
}

// underlay is what carries between the nodes.
type underlay struct {
	name  string
	mtu   int  // of their uplinks
	ipv6  bool // they are known by an IPv6 address alone
	both  bool // they are known by addresses of both families, and all but the last carry over IPv6
	xdp   bool // drivers carry
	sums  bool // their uplinks finish no checksum
	vxlan bool // they are known by an address of a VXLAN device
	home  int  // MTU of the uplink of the second node; 0: as the others
	leg   int  // MTU of a leg between client and router; 0: 1500
	quiet bool // no ICMP error passes the router
}

var carriedAt = [2]netip.AddrPort{netip.MustParseAddrPort("203.0.113.10:80"), netip.MustParseAddrPort("[2001:db8:f::10]:80")}

func newFabric(tb testing.TB, forwarding string) *fabric {
	tb.Helper()
	return newFabricOver(tb, forwarding, underlay{mtu: 1500})
}

func newFabricOver(tb testing.TB, forwarding string, u underlay) *fabric {
	tb.Helper()
	testenv.Need(tb)
	f := &fabric{tb: tb, underlay: u, manifests: tb.TempDir(), forwarding: forwarding, pause: 100 * time.Millisecond}
	f.client, _, f.router = newWay(tb, cmp.Or(u.leg, 1500))
	var ports []string
	for i := range f.nodes {
		f.nodes[i], f.pods[i] = f.newNode(i + 1)
		ports = append(ports, f.nodes[i].name)
	}
	f.router.bridge("br0", ports...)
	f.router.address("br0", "192.0.2.254/24", "2001:db8::fe/64")
	for _, n := range f.nodes {
		f.connect(n)
	}
	f.router.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0) // ports count
	})
	if u.xdp {
		f.takeDriven()
	}
	if u.quiet {
		f.router.dropErrors()
	}
	if u.sums {
		for _, n := range f.nodes {
			n.sumHere("eth0")
		}
	}
	return f
}

// takeDriven has the fabric take what drivers of nodes send, see network.takeDriven.
func (f *fabric) takeDriven() {
	f.tb.Helper()
	f.client.sumHere("eth0")
	for i, n := range f.nodes {
		n.sumHere("eth0")
		n.sumHere("pod0")
		f.pods[i].sumHere("eth0")
		f.router.takesXDP(n.name)
		f.router.sumHere(n.name)
	}
}

// carriedAtDrivers is how many packets drivers have carried.
func (f *fabric) carriedAtDrivers(t *testing.T) (sum uint64) {
	t.Helper()
	for _, n := range f.nodes {
		sum += n.counter(t, "carried_at_driver")
	}
	return sum
}

// newNode makes a node with its pod, which serves.
func (f *fabric) newNode(number int) (*node, *host) {
	f.tb.Helper()
	name := fmt.Sprint("node-", number)
	n := &node{
		host: newHost(f.tb, name), number: number, name: name,
		addr: netip.MustParseAddr(fmt.Sprint("192.0.2.", number)), addr6: netip.MustParseAddr(fmt.Sprint("2001:db8::", number)),
	}
	n.snat = [2]netip.Addr{netip.MustParseAddr(fmt.Sprint("172.31.0.", number)), netip.MustParseAddr(fmt.Sprint("fd00:31::", number))}
	mtu := f.underlay.mtu
	if number == 2 {
		mtu = cmp.Or(f.underlay.home, mtu)
	}
	plug(f.router, name, n.host, "eth0", mtu)
	n.address("eth0", n.addr.String()+"/24", n.addr6.String()+"/64")
	n.route("0.0.0.0/0", "192.0.2.254")
	n.route("::/0", "2001:db8::fe")
	pod := newHost(f.tb, fmt.Sprint("pod-", number))
	plug(n.host, "pod0", pod, "eth0", 1500)
	for family, addr := range n.podAddrs(pod) {
		bits, gateway := [2]string{"/24", "/64"}[family], n.gateways()[family].String()
		n.address("pod0", gateway+bits)
		pod.address("eth0", addr.String()+bits)
		pod.route([2]string{"0.0.0.0/0", "::/0"}[family], gateway)
	}
	pod.serveAs(fmt.Sprint("pod-", number))
	return n, pod
}

// connect makes the way from a node to the others and to their pods.
func (f *fabric) connect(n *node) {
	f.tb.Helper()
	if f.underlay.vxlan {
		f.tunnel(n)
		return
	}
	for _, other := range f.nodes {
		if other != n {
			n.route(fmt.Sprintf("10.244.%d.0/24", other.number), other.addr.String())
			n.route(fmt.Sprintf("fd00:10:244:%d::/64", other.number), other.addr6.String())
		}
	}
}

// known is the address that others know a node by.
func (f *fabric) known(n *node) netip.Addr {
	if f.underlay.vxlan {
		return n.snat[0]
	}
	if f.underlay.ipv6 {
		return n.addr6
	}
	return n.addr
}

// announce has the router send what is for the Service to some nodes, by number.
func (f *fabric) announce(nodes []int) {
	f.tb.Helper()
	for family, at := range carriedAt {
		route := &netlink.Route{Dst: ipNet(netip.PrefixFrom(at.Addr(), at.Addr().BitLen()))}
		for _, n := range nodes {
			via := [2]netip.Addr{f.nodes[n].addr, f.nodes[n].addr6}[family]
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: net.IP(via.AsSlice())})
		}
		f.router.do(func() error { return netlink.RouteReplace(route) })
	}
}

// endpoints says which pods take connections; the others drain.
func (f *fabric) endpoints(ready []int) {
	f.tb.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {headgate.dev/forwarding: %s}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, "fd00:10:96::1"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack,
  ports: [{name: tcp, port: 80, protocol: TCP, targetPort: 8080}, {name: udp, port: 80, protocol: UDP, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: %q}, {ip: %q}]}}
`, f.forwarding, carriedAt[0].Addr(), carriedAt[1].Addr())
	for _, family := range families {
		fmt.Fprintf(&text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[2]s, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %[1]v
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}]
endpoints:
`, family, strings.ToLower(family.String()))
		for i, n := range f.nodes {
			is := slices.Contains(ready, i)
			fmt.Fprintf(&text, "- {addresses: [%q], nodeName: %s, conditions: {ready: %v, serving: true, terminating: %v}}\n", n.podAddrs(f.pods[i])[family], n.name, is, !is)
		}
	}
	for _, n := range f.nodes {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: %q}", n.name, f.known(n))
		if f.underlay.both {
			fmt.Fprintf(&text, ", {type: InternalIP, address: %q}", n.addr6)
		}
		fmt.Fprintln(&text, "]}")
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
	root, key := testenv.BPFRoot(f.tb), writeHashKey(f.tb)
	for _, n := range f.nodes {
		n.root, n.options = filepath.Join(root, n.name), []string{"--forwarding", "marked", "--hash-key-file", key, "--state-dir", f.tb.TempDir()}
		if f.underlay.both && n.number < len(f.nodes) {
			n.options = append(n.options, "--dsr-family", "ipv6")
		}
		if f.underlay.xdp {
			n.options = append(n.options, byDrivers...)
		}
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
		n.frontends = 8
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
	links, want := filepath.Join(n.root, "links", "device_in_*"), 1
	if f.underlay.vxlan {
		want = 2
	}
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if attached, err := filepath.Glob(links); err == nil && len(attached) == want {
			break
		}
	}
	n.awaitBalance(want)
}

// story is connections and flows of datagrams while backends come and drain, the router chooses other nodes, both once
// a second, and agents are killed and come again, each time with other programs.
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
			n.changePrograms()
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

// changePrograms has the next agent load other programs, as an upgrade does. The setting is of packets to
// backends outside: nodes with either carry to each other.
func (n *node) changePrograms() {
	if i := slices.Index(n.options, "ipip"); i > 0 {
		n.options = slices.Delete(n.options, i-1, i+1)
	} else {
		n.options = append(n.options, "--dsr-encapsulation", "ipip")
	}
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
	for _, how := range []string{"dsr", "dsr by drivers", "snat"} {
		t.Run(how, func(t *testing.T) {
			forwarding, driven := strings.CutSuffix(how, " by drivers")
			f := newFabricOver(t, forwarding, underlay{mtu: 1500, xdp: driven})
			o := f.story(60, 20, 20, rand.New(rand.NewPCG(1, 1)))
			t.Log(o)
			lost := o.reset + o.stuck + o.failed + o.moved
			switch {
			case forwarding == "dsr" && (lost > 0 || o.hidden > 0):
				t.Errorf("%s; want none of these", o)
			case forwarding == "snat" && lost == 0:
				t.Errorf("%s; the story is harmless", o)
			case driven && f.carriedAtDrivers(t) == 0:
				t.Error("no driver carried anything")
			case f.takenForForged(t) > 0:
				t.Errorf("%d packets that nodes carry are taken for forged", f.takenForForged(t))
			}
		})
	}
}
