package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// explainedNodes are this node, and the one that packets are carried to. Others have no address: nothing is carried there.
const explainedNodes = `apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}
status: {addresses: [{type: InternalIP, address: 198.18.0.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-c, labels: {topology.kubernetes.io/zone: zone-b}}
status: {addresses: [{type: InternalIP, address: 198.18.0.2}]}
`

// homeName is the node that packets are carried to.
const homeName = "node-c"

// world is how the agent of a node runs.
type world struct {
	devices  string // with programs
	dsr, xdp bool
}

// newWorld returns one of eight worlds in turn. The first of all carries and has programs at drivers, and one card without any.
func newWorld(seed uint64) world {
	w := world{devices: "hg0,hghome", dsr: seed&2 == 0, xdp: seed&4 == 0}
	if seed&1 == 0 {
		w.devices += ",hg1"
	}
	return w
}

// explainedFlows are entries of the flow table, of which a connection to a backend of this node takes two.
const explainedFlows = 4096

// flags are those of the agent.
func (w world) flags(n *explainedNode) []string {
	flags := []string{"--devices", w.devices, "--flows", strconv.Itoa(explainedFlows)}
	if w.dsr {
		flags = append(flags, n.home.flags...)
	}
	if w.xdp {
		flags = append(flags, "--xdp", w.devices)
	}
	return flags
}

// home is another node, which has backends.
type home struct {
	*traffic.Namespace
	cgroup *traffic.Cgroup
	flags  []string // of agents that carry
}

// addHome makes another node, and the device that leads there.
func (n *explainedNode) addHome() {
	n.home = &home{Namespace: testenv.Beside(n, "hg-home", "hghome")}
	n.ip(nil, "address add 198.18.0.1/24 dev hghome", "link set hghome up")
	n.check(os.WriteFile("/proc/sys/net/ipv4/conf/hghome/forwarding", []byte("1"), 0o600))
	n.ip(n.home.Namespace, "link set lo up", "address add 198.18.0.2/24 dev eth0", "link set eth0 up", "route add default via 198.18.0.1")
	for _, h := range randomHosts {
		if h.node == homeName {
			n.ip(nil, "route add "+h.addr+"/32 via 198.18.0.2")
		}
	}
	var err error
	n.home.cgroup, err = traffic.NewCgroup(testenv.Cgroup(n), "home")
	n.check(err)
	n.Cleanup(func() { n.check(n.home.cgroup.Close()) })
	key := filepath.Join(n.TempDir(), "hash-key")
	n.check(os.WriteFile(key, []byte("the same at both nodes, and long enough"), 0o600))
	n.home.flags = []string{"--forwarding", "dsr", "--hash-key-file", key}
}

// sumAtSenders has packets leave with a checksum, as drivers need it, and other ends take frames of drivers.
func (n *explainedNode) sumAtSenders() {
	for _, d := range []struct {
		name string
		in   *traffic.Namespace
	}{{"eth0", n.outside}, {"eth1", n.outside}, {"eth0", n.home.Namespace}} {
		n.check(d.in.Do(func() error {
			off, on := uint32(0), uint32(1)
			if err := testenv.Ethtool(d.name, unix.ETHTOOL_STXCSUM, &off); err != nil {
				return err
			}
			return testenv.Ethtool(d.name, unix.ETHTOOL_SGRO, &on)
		}))
	}
}

// serve starts the agent of the other node, which runs until somebody ends it.
func (h *home) serve(n *explainedNode, manifests string) (end func()) {
	n.Helper()
	places := []string{"--bpf-root", testenv.BPFRoot(n), "--state-dir", n.TempDir()}
	agent := exec.Command("/proc/self/exe", append(append([]string{"agent", "--manifests", manifests, "--node-name", homeName, "--cgroup", h.cgroup.Path, "--devices", "eth0",
		"--healthz-bind-address", "", "--metrics-bind-address", ""}, places...), h.flags...)...)
	agent.Args[0] = "headgate"
	n.check(h.Start(agent))
	return func() {
		n.Helper()
		n.check(agent.Process.Signal(os.Interrupt))
		n.check(agent.Wait())
		cleanup := exec.Command("/proc/self/exe", append([]string{"cleanup"}, places...)...)
		cleanup.Args[0] = "headgate"
		n.check(h.Start(cleanup))
		n.check(cleanup.Wait())
	}
}

// awaitHome waits until packets are carried to the other node.
func (n *explainedNode) awaitHome() {
	n.Helper()
	for end := time.Now().Add(time.Minute); !n.isCarried(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			n.Fatal("the other node is not usable")
		}
	}
}

// isCarried says whether the agent carries to the other node now.
func (n *explainedNode) isCarried() bool {
	n.Helper()
	out, err := n.command("peer", "list", "-o", "json").Output()
	n.check(err)
	var all struct {
		Items []struct{ Usable, Carries, Returns bool }
	}
	n.check(json.Unmarshal(out, &all))
	return len(all.Items) == 1 && all.Items[0].Usable && all.Items[0].Carries && all.Items[0].Returns
}

// counts are what a node has counted.
type counts struct {
	drops       map[string]uint64 // by reason
	connections uint64            // of a Service port
	carried     uint64            // SYNs, to the home of backends
}

// counted is what the node has counted, of a Service port, too.
func (n *explainedNode) counted(service string) (c counts) {
	n.Helper()
	r, err := datapath.Inspect(n.root)
	n.check(err)
	defer r.Close()
	_, c.drops, err = r.Counters()
	n.check(err)
	ids, err := r.Services()
	n.check(err)
	for id := range ids {
		if port, err := r.Service(id); err == nil && port.String() == service {
			c.connections, err = r.Connections(id)
			n.check(err)
		}
	}
	for id := range r.Peers() {
		p, err := r.PeerCounts(id)
		n.check(err)
		c.carried += p.CarriedSYN
	}
	return c
}

// compareHome compares whether packets are said to be carried with whether they were. Each port has the backend that
// explain names for it.
func (n *explainedNode) compareHome(said told, from, to string, got map[string]int, carried uint64) {
	n.Helper()
	answered := 0
	for _, h := range randomHosts {
		if h.node == homeName {
			answered += got[h.addr]
		}
	}
	is := strings.Contains(said.Outcome, "forwarded (DSR) to node "+homeName+" at 198.18.0.2")
	addr, _, _ := strings.Cut(said.To, ":")
	for _, h := range randomHosts {
		if h.addr == addr && is != (h.node == homeName && carried > 0) {
			n.Errorf("%d connections are carried, and %d answered by %s, said is: %s", carried, answered, homeName, said.Outcome)
		}
	}
	if carried > 0 && carried < uint64(answered) {
		n.Errorf("of %d connections to %s %d are carried", answered, homeName, carried)
	}
	if is {
		n.seen["carried"]++
	}
	if carried == 0 {
		return
	}
	for range 2 { // all nodes choose by the same hash
		n.fresh++ // what a backend has just closed it may not take again
		at := net.JoinHostPort(from, strconv.Itoa(aboveEphemeral+n.fresh%4096))
		said = n.explain(at, to)
		addr, _, _ := strings.Cut(said.To, ":")
		patience := 5 * time.Second
		if n.dead[said.To] {
			patience = 300 * time.Millisecond
		}
		for what := range n.connections(at, to, 1, patience) {
			if strings.Contains(said.Outcome, "a backend is drained here, and other nodes may still have it") {
				continue
			}
			n.seen["named by explain"]++
			if (what == addr) == n.dead[said.To] {
				n.Errorf("%s has %s, said is: %s", at, what, said.Outcome)
			}
		}
	}
}

// aboveEphemeral is above the ports that sockets choose.
const aboveEphemeral = 61000

// ports has each connection by drivers come from another port. One that comes again within a second is repeated as the
// connection before was, and counts with it.
func (n *explainedNode) ports(from string, times int) string {
	if !n.driven || strings.Contains(from, ":") {
		return from
	}
	const first, last = 10000, 39999 // explain is asked for 40000 and others above
	if n.port < first || n.port+times > last {
		n.port = first
	}
	begin := n.port
	n.port += times
	return net.JoinHostPort(from, strconv.Itoa(begin))
}

// noteDriver notes what drivers have done.
func (n *explainedNode) noteDriver(w world) {
	n.Helper()
	out, _ := n.command("status", "-j").Output() // the code tells how the node is
	var status struct{ Counters map[string]uint64 }
	n.check(json.Unmarshal(out, &status))
	c := status.Counters
	if w.xdp != (c["flow_repeated"] > 0) || (w.xdp && w.dsr) != (c["carried_at_driver"] > 0) {
		n.Errorf("drivers have repeated %d packets and carried %d: %+v", c["flow_repeated"], c["carried_at_driver"], w)
	}
	if w.xdp {
		n.seen["at the driver"]++
	}
}

// longService has a backend of this node that keeps connections open.
const longService = `apiVersion: v1
kind: Service
metadata: {name: long, namespace: default}
spec: {type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: long-1, namespace: default, labels: {kubernetes.io/service-name: long}}
addressType: IPv4
ports: [{port: 8081}]
endpoints: [{addresses: [10.244.1.7], nodeName: node-a}]
`

// fill has the machine outside open connections until the flow table takes no more, and keep them until somebody ends them.
func (n *explainedNode) fill() (end func()) {
	n.Helper()
	testenv.AddAddress(n, "10.244.1.7") // which nobody drains
	l, err := net.Listen("tcp", "10.244.1.7:8081")
	n.check(err)
	go keepAll(l)
	holder := exec.Command("/proc/self/exe", "203.0.113.9:80", strconv.Itoa(explainedFlows), "1500ms", "hold")
	holder.Args[0] = clientProgram
	said, err := holder.StdoutPipe()
	n.check(err)
	stays, err := holder.StdinPipe()
	n.check(err)
	n.check(startOutside(n.outside, testenv.Cgroup(n), holder))
	line, err := bufio.NewReader(said).ReadString('\n')
	n.check(err)
	held, err := strconv.Atoi(strings.TrimSpace(line))
	n.check(err)
	if held < explainedFlows/4 || held == explainedFlows {
		n.Errorf("a table of %d entries takes %d connections", explainedFlows, held)
	}
	n.full = true
	return func() {
		_ = stays.Close()
		_ = holder.Wait()
		_ = l.Close()
	}
}

// keepAll keeps connections open for as long as clients do.
func keepAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}()
	}
}

// compareFull compares how many connections are said to find no room with how many did. It returns false where all find some.
func (n *explainedNode) compareFull(said told, got map[string]int, times int, lacked uint64) bool {
	n.Helper()
	lacking, of := 0, 1
	if at := strings.Index(said.Remedy, "the flow table is full: "); at >= 0 {
		_, err := fmt.Sscanf(said.Remedy[at:], "the flow table is full: %d of %d new flows", &lacking, &of)
		n.check(err)
	}
	if lacking == 0 && lacked == 0 {
		return false
	}
	n.wantShare("what finds no room", 100*float64(lacking)/float64(of), int(lacked))
	if most := times - int(lacked); times-failed(got) > most {
		n.Errorf("more than %d are answered: %v", most, got)
	}
	if said.Refused == "table_full" {
		n.seen["table_full"]++
	}
	return true
}
