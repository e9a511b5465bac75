package network

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// option is a Service with something that Services can have.
type option struct {
	name        string
	annotations []string // `"name": "value"`
	spec        string   // lines
	notReady    bool     // one endpoint is not
}

// options are Services with everything that they can have, one way or another.
func options() []option {
	const weights = `"headgate.dev/weights": "10.244.1.10=3,10.244.2.10=2"`
	all := []option{
		{name: "plain"},
		{name: "table-size", annotations: []string{`"headgate.dev/algorithm": "maglev"`, `"headgate.dev/table-size": "251"`}},
		{name: "drain-time", annotations: []string{`"headgate.dev/drain-time": "1m"`}},
		{name: "slow-start", annotations: []string{`"headgate.dev/slow-start": "1m"`}},
		{name: "no-passive-health", annotations: []string{`"headgate.dev/passive-health": "off"`}},
		{name: "affinity", spec: "  sessionAffinity: ClientIP\n"},
		{name: "source-ranges", spec: "  loadBalancerSourceRanges: [198.51.100.0/24]\n"},
		{name: "external-local", spec: "  externalTrafficPolicy: Local\n"},
		{name: "internal-local", spec: "  internalTrafficPolicy: Local\n"},
	}
	for _, algorithm := range lb.Algorithms() {
		a := fmt.Sprintf(`"headgate.dev/algorithm": %q`, algorithm)
		all = append(all, option{name: algorithm, annotations: []string{a, weights}},
			option{name: algorithm + "-zone", annotations: []string{a, `"headgate.dev/zone-policy": "prefer-zone"`}})
	}
	for _, policy := range lb.ZonePolicies() {
		p := fmt.Sprintf(`"headgate.dev/zone-policy": %q`, policy)
		all = append(all, option{name: policy, annotations: []string{p}}, option{name: policy + "-not-ready", annotations: []string{p}, notReady: true})
	}
	return all
}

// frontendsOfOption is how many a Service has: ClusterIP, NodePort, external IP and one
// of a load balancer, each for TCP and UDP.
const frontendsOfOption = 4 * 2

// addresses returns where the i-th Service is found: in the cluster, at a node, and
// from outside.
func addresses(i int) (cluster, port, external, balancer netip.AddrPort) {
	to := func(format string) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf(format, i+1)) }
	return to("10.96.1.%d:80"), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(30100+i)), to("203.0.113.%d:80"), to("203.0.113.1%02d:80")
}

// object returns the i-th Service with its endpoints: two on the node, another in its
// zone, and one in another zone.
func (o option) object(i int) string {
	cluster, port, external, balancer := addresses(i)
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, annotations: {%[2]s}}
spec:
  type: LoadBalancer
  clusterIP: %[3]s
  externalIPs: [%[4]s]
  ports:
  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: %[5]d}
  - {name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: %[5]d}
%[6]sstatus: {loadBalancer: {ingress: [{ip: %[7]s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: t, protocol: TCP, port: 8080}, {name: u, protocol: UDP, port: 8080}]
endpoints:
- {addresses: [10.244.1.10], nodeName: node-1, zone: zone-a}
- {addresses: [10.244.1.20], nodeName: node-1, zone: zone-a, conditions: {ready: %[8]t}}
- {addresses: [10.244.2.10], nodeName: node-2, zone: zone-a}
- {addresses: [10.244.2.20], nodeName: node-2, zone: zone-b}
`, o.name, strings.Join(o.annotations, ", "), cluster.Addr(), external.Addr(), port.Port(), o.spec, balancer.Addr(), !o.notReady)
}

// others are a Service whose endpoint takes no connections, and one whose table for
// hashes changes.
const others = `---
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-a}}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: failing, namespace: default}
spec: {type: NodePort, clusterIP: 10.96.0.9, ports: [{port: 80, nodePort: 30099}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: failing, namespace: default, labels: {kubernetes.io/service-name: failing}}
addressType: IPv4
ports: [{port: 9}]
endpoints: [{addresses: [10.244.1.10], nodeName: node-1}]
---
apiVersion: v1
kind: Service
metadata: {name: changing, namespace: default, annotations: {"headgate.dev/algorithm": "maglev"}}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: changing, namespace: default, labels: {kubernetes.io/service-name: changing}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.10]}, {addresses: [10.244.2.10]}]
`

// frontendsOfOthers is how many these have: two and one.
const frontendsOfOthers = 3

// flows are open flows of all kinds.
type flows struct {
	outside map[string]net.Conn
	*holder
}

// openFlows opens flows to the i-th Service, of clients outside and of sockets.
func (f flows) openFlows(n *network, i int) {
	n.tb.Helper()
	cluster, port, external, balancer := addresses(i)
	for j, to := range []netip.AddrPort{port, port, port, external, balancer} {
		for _, protocol := range []string{"tcp", "udp"} {
			conn, err := n.client.dial(protocol, to)
			if err != nil {
				n.tb.Fatalf("dial %s %s: %v", protocol, to, err)
			}
			n.tb.Cleanup(func() { conn.Close() })
			f.outside[fmt.Sprintf("client %d, %s %s", j, protocol, to)] = conn
		}
	}
	for _, to := range []netip.AddrPort{cluster, cluster, port} {
		for _, kind := range []string{"tcp", "udp", "datagram"} {
			f.open(kind, to)
		}
	}
}

// ask returns who answers each flow.
func (f flows) ask() map[string]string {
	said := f.holder.ask()
	for name, conn := range f.outside {
		var err error
		if said[name], err = askBy(conn); err != nil {
			said[name] = "error: " + err.Error()
		}
	}
	return said
}

// kept is what must be the same after an agent was replaced.
type kept struct {
	Content   string
	Counters  map[string]uint64 // of what is lost, or begins
	Drops     map[string]uint64
	InFlight  map[string]uint32
	Ejected   []string
	Entries   map[string]uint32 // of maps that the datapath fills
	Frontends int
}

// kept reads it.
func (n *node) kept(t *testing.T) kept {
	t.Helper()
	i, err := datapath.Inspect(n.root)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	c, err := i.Content()
	if err != nil {
		t.Fatal(err)
	}
	s, err := i.Status()
	if err != nil {
		t.Fatal(err)
	}
	k := kept{Content: c.String(), Counters: s.Counters, Drops: s.Drops, InFlight: map[string]uint32{}, Frontends: len(c.Frontends)}
	for name := range s.Counters {
		switch name {
		case "sendmsg", "recvmsg", "getpeername", "flow_packet", "flow_redirected", "flow_repeated", "flow_unrepeated":
			delete(s.Counters, name) // of the flows that are to live on
		}
	}
	for _, b := range i.Backends() {
		k.InFlight[b.At.String()] = b.InFlight
		if b.Ejected > 0 {
			k.Ejected = append(k.Ejected, b.At.String())
		}
	}
	if k.Entries, err = i.CountEntries(); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(k.Entries, func(name string, _ uint32) bool {
		return name != "flow_table" && name != "affinities" && name != "slot_changes"
	})
	return k
}

// optionStage is a network whose first node balances Services with every option.
type optionStage struct {
	*network
	node    *node
	log     *testenv.LockedBuffer // of its agents
	objects string
}

// newOptionStage makes one. With flags both nodes have an agent with these, so that packets can
// be carried, and the network takes what drivers send.
func newOptionStage(t *testing.T, flags ...string) optionStage {
	t.Helper()
	n := newNetwork(t, false)
	if len(flags) > 0 {
		n.takeDriven()
	}
	for _, node := range n.nodes {
		node.serve()
		node.guest.serveAs(fmt.Sprintf("guest-%d", node.number))
	}
	s := optionStage{n, n.nodes[0], &testenv.LockedBuffer{}, others}
	for i, o := range options() {
		s.objects += o.object(i)
	}
	n.write("services.yaml", s.objects)
	s.node.log, s.node.options = s.log, []string{"--log-level", "info", "--eject-after", "2"}
	agents := n.nodes[:1]
	if len(flags) > 0 {
		agents = n.nodes[:]
	}
	if slices.Contains(flags, carriesAll) {
		flags = append(slices.Clone(flags), "--hash-key-file="+writeHashKey(t))
	}
	root := testenv.BPFRoot(t)
	for _, node := range agents {
		node.options = slices.Concat(node.options, flags, []string{"--state-dir", t.TempDir()})
		n.startAgentOf(node, root, frontendsOfOption*len(options())+frontendsOfOthers)
	}
	for _, node := range agents {
		node.awaitBalance(n.devices)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agents say:\n%s", s.log)
		}
	})
	return s
}

// openAll opens flows to every Service, until both sides have confirmed them, and
// returns who answers each.
func (s optionStage) openAll(t *testing.T) (flows, map[string]string) {
	t.Helper()
	f := flows{map[string]net.Conn{}, s.node.newHolder()}
	for i := range options() {
		f.openFlows(s.network, i)
	}
	said := f.ask()
	for flow, who := range said {
		if !strings.HasPrefix(who, "pod-") && !strings.HasPrefix(who, "guest-") {
			t.Fatalf("%s is answered %q", flow, who)
		}
	}
	time.Sleep(3 * time.Second) // younger datagrams do not confirm a flow
	if diff := cmp.Diff(said, f.ask()); diff != "" {
		t.Fatalf("flows change their backends (-before +after):\n%s", diff)
	}
	return f, said
}

// TestFlowsOutliveAgentsWithEveryOption has Services with every option, all at once,
// and replaces the agent in every way: what is open stays with its backend, and what
// the datapath knows stays known.
func TestFlowsOutliveAgentsWithEveryOption(t *testing.T) {
	for name, flags := range map[string][]string{"by TC": nil, "by drivers": byDrivers} {
		t.Run(name, func(t *testing.T) {
			s := newOptionStage(t, flags...)
			s.outliveAgents(t)
			if repeated := s.node.counter(t, "flow_repeated"); (repeated > 0) != (flags != nil) {
				t.Errorf("drivers have repeated %d packets", repeated)
			}
		})
	}
}

func (s optionStage) outliveAgents(t *testing.T) {
	f, said := s.openAll(t)
	s.ejectFailing(t)
	s.changeSlots(t)
	before, object := s.node.kept(t), s.node.status(t).Object
	for name, n := range before.Entries {
		if n == 0 {
			t.Errorf("there is nothing in %s that could be lost", name)
		}
	}
	for _, replace := range []struct {
		name    string
		signal  syscall.Signal
		options []string
	}{
		{"a restart", syscall.SIGTERM, nil},
		{"kill -9", syscall.SIGKILL, nil},
		{"an upgrade to more entries", syscall.SIGTERM, []string{"--socket-entries", "4096"}},
		{"an upgrade to another size of the flow table", syscall.SIGKILL, []string{"--flows", "131072"}},
	} {
		s.node.do(func() error { netdev.TrackFromSYN(s.node.root); return nil }) // as who hands over and is killed
		s.replaceAgent(t, replace.signal, replace.options)
		if loose := s.node.loose(); loose != "1" {
			t.Errorf("%s: %s is %s, want 1 as before the hand-over that was killed", replace.name, looseSetting, loose)
		}
		now := s.node.status(t).Object
		if (now != object) != (replace.options != nil) {
			t.Errorf("%s: the object was %s and is %s", replace.name, object, now)
		}
		object = now
		if diff := cmp.Diff(before, s.node.kept(t)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", replace.name, diff)
		}
		if diff := cmp.Diff(said, f.ask()); diff != "" {
			t.Errorf("%s: flows (-before +after):\n%s", replace.name, diff)
		}
		if diff := cmp.Diff(before, s.node.kept(t)); diff != "" {
			t.Errorf("%s, after flows went on (-before +after):\n%s", replace.name, diff)
		}
	}
}

// changeSlots takes an endpoint from a Service whose table is for hashes.
func (s optionStage) changeSlots(t *testing.T) {
	t.Helper()
	s.write("services.yaml", strings.Replace(s.objects, ", {addresses: [10.244.2.10]}]", "]", 1))
	eventually(t, "slots have changed", func() error {
		if s.node.kept(t).Entries["slot_changes"] == 0 {
			return errors.New("there is no change")
		}
		return nil
	})
}

// ejectFailing has clients ask for what takes no connections until it is ejected.
func (s optionStage) ejectFailing(t *testing.T) {
	t.Helper()
	eventually(t, "the backend that takes no connections is ejected", func() error {
		for range 3 {
			if conn, err := s.client.dial("tcp", s.node.at(0, 30099)); err == nil {
				conn.Close()
			}
		}
		if _, err := s.node.askLocally(s.node.host, "tcp", netip.MustParseAddrPort("10.96.0.9:80"), 3); err != nil {
			return err
		}
		if k := s.node.kept(t); len(k.Ejected) == 0 {
			return fmt.Errorf("nobody is: %v", k.Counters)
		}
		return nil
	})
}

// replaceAgent ends the agent by a signal and starts another, with more options, which
// stay.
func (s optionStage) replaceAgent(t *testing.T, signal syscall.Signal, options []string) {
	t.Helper()
	if err := s.node.agent.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = s.node.agent.Wait() // says only that it was killed
	s.node.options = append(s.node.options, options...)
	had := len(s.log.String())
	s.node.startAgent(s.manifests)
	eventually(t, "the next agent is ready", func() error {
		if now := s.log.String()[had:]; !strings.Contains(now, "\tready") { // Services have the word in their names
			return fmt.Errorf("it says %s", now)
		}
		return nil
	})
}
