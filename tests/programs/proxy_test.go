package programs

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/rules"
	"github.com/headgate/headgate/tests/testenv"
)

// proxy has a node balance.
type proxy interface {
	// balance returns when these are the backends.
	balance(backends ...netip.Addr) error
	stop()
}

const (
	kubeProxy = "kube-proxy's rules" // others are measured by it
	byFilters = "headgate --filters"
)

// contender is what balances, and is compared.
type contender struct {
	name  string
	start func(r *rig) proxy
}

var proxies = []contender{
	{kubeProxy, func(r *rig) proxy { return &ruled{r} }},
	{"headgate", func(r *rig) proxy { return newHeadgate(r) }},
	{byFilters, func(r *rig) proxy { return newHeadgate(r, "--filters") }},
}

// ruled balances by nftables and the kernel's connection tracking.
type ruled struct{ r *rig }

func (k *ruled) balance(backends ...netip.Addr) error {
	at := func(addr netip.Addr, port, to uint16, backends ...netip.Addr) rules.Service {
		s := rules.Service{Protocol: strings.ToLower(k.r.protocol.String()), Addr: netip.AddrPortFrom(addr, port)}
		for _, b := range backends {
			s.Endpoints = append(s.Endpoints, netip.AddrPortFrom(b, to))
		}
		return s
	}
	for _, n := range k.r.nodes() {
		node := k.r.of(n.Machine)
		services := []rules.Service{
			at(k.r.serviceIP, k.r.port, k.r.port, backends...), at(node, nodePort, k.r.outside, backends...), at(k.r.external, k.r.port, k.r.port, backends...),
			at(k.r.closedIP, k.r.port, nothing, k.r.backend), at(node, closedPort, nothing, k.r.backend), at(k.r.closedExternal, k.r.port, nothing, k.r.backend),
		}
		replace := "table " + k.table() + "\ndelete table " + k.table() + "\n" // in one step
		if err := k.nft(n.Name, replace+strings.Join(rules.NFTables(services, k.r.podRange), "\n")); err != nil {
			return err
		}
		if k.r.protocol == lb.UDP {
			_ = k.r.run(n.Name, "conntrack", "-D", "-p", "udp", "-f", strings.ToLower(k.r.name)) // fails where there is none to forget
		}
	}
	return nil
}

func (k *ruled) table() string { return k.r.table + " headgate-bench" }

func (k *ruled) stop() {
	k.r.t.Helper()
	for _, n := range k.r.nodes() {
		if err := k.nft(n.Name, "delete table "+k.table()); err != nil {
			k.r.t.Fatal(err)
		}
	}
}

func (k *ruled) nft(node, transaction string) error {
	return k.r.topology.Namespace(node).Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(transaction)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// headgate balances by an agent on each node.
type headgate struct {
	r      *rig
	agents []*testenv.Agent // in the order of the nodes
	says   string           // annotations of Services
}

func newHeadgate(r *rig, flags ...string) *headgate {
	r.t.Helper()
	var objects strings.Builder
	for _, m := range r.machines {
		if m.Node != "" {
			fmt.Fprintf(&objects, podObject, m.Name, m.Addrs[0], m.Addrs[1], m.Node)
		}
	}
	h := &headgate{r: r}
	for _, n := range r.nodes() {
		fmt.Fprintf(&objects, nodeObject, n.Name, n.Addrs[0], n.Addrs[1])
		a := testenv.NewAgent(r.t, nil)
		a.Cgroup, a.Run = r.cgroup(n.Name).Path, r.topology.Namespace(n.Name).Start
		a.Flags = append([]string{"--node-name", n.Name, "--devices", "hg-router", "--pod-devices", "all", "--state-dir", r.t.TempDir()}, flags...)
		h.agents = append(h.agents, a)
		a.Dir = h.agents[0].Dir
	}
	h.agents[0].Write("objects.yaml", objects.String())
	return h
}

const nodeObject = `---
apiVersion: v1
kind: Node
metadata: {name: %s}
status: {addresses: [{type: InternalIP, address: %s}, {type: InternalIP, address: "%s"}]}
`

const podObject = `---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec: {nodeName: %[4]s, containers: [{name: a, image: a}]}
status: {podIPs: [{ip: %[2]s}, {ip: "%[3]s"}]}
`

const serviceObject = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, annotations: {%[10]s}}
spec:
  type: NodePort
  externalIPs: ["%[11]s"]
  clusterIP: "%[2]s"
  clusterIPs: ["%[2]s"]
  ipFamilies: [%[12]s]
  ports: [{name: inside, port: %[3]d, nodePort: %[5]d, protocol: %[13]s}, {name: outside, port: %[4]d, nodePort: %[6]d, protocol: %[13]s}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[12]s
ports: [{name: inside, port: %[7]d, protocol: %[13]s}, {name: outside, port: %[8]d, protocol: %[13]s}]
endpoints: [%[9]s]
`

func (h *headgate) balance(backends ...netip.Addr) error {
	endpoint := func(b netip.Addr) string { return fmt.Sprintf(`{addresses: ["%s"], nodeName: %s}`, b, h.r.home) }
	var endpoints []string
	for _, b := range backends {
		endpoints = append(endpoints, endpoint(b))
	}
	service := func(name string, ip, external netip.Addr, at, inside, outside uint16, endpoints ...string) string {
		return fmt.Sprintf(serviceObject, name, ip, h.r.port, h.r.port+1, at+1, at, inside, outside, strings.Join(endpoints, ", "), h.says, external, h.r.name, h.r.protocol)
	}
	h.agents[0].Write("services.yaml", service("program", h.r.serviceIP, h.r.external, nodePort, h.r.port, h.r.outside, endpoints...)+
		service("closed", h.r.closedIP, h.r.closedExternal, closedPort, nothing, nothing, endpoint(h.r.backend)))
	for _, a := range h.agents {
		if a.PID() == 0 {
			a.Start()
		}
	}
	var err error
	for range 300 {
		if err = h.have(backends); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// have returns an error until all nodes balance, and node-a carries to the home.
func (h *headgate) have(backends []netip.Addr) error {
	for i, n := range h.r.nodes() {
		if err := h.has(n.Name, h.agents[i].Root, backends); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	if h.r.home == "node-a" {
		return nil
	}
	return h.carries()
}

// has returns an error until everything of a node is attached and these are the backends.
func (h *headgate) has(node, root string, backends []netip.Addr) error {
	i, err := datapath.Inspect(root)
	if err != nil {
		return err
	}
	defer i.Close()
	var status datapath.Status
	if err := h.r.topology.Namespace(node).Do(func() (err error) { status, err = i.Status(); return err }); err != nil {
		return err
	}
	want := 1 // that leads outside
	for _, m := range h.r.machines {
		if m.Node == node {
			want++
		}
	}
	if n := len(status.Devices); n != want {
		return fmt.Errorf("%d devices have programs, want those of %d pods and the one that leads outside", n, want-1)
	}
	for _, d := range status.Devices {
		for _, hook := range d.Hooks {
			if !hook.Attached {
				return fmt.Errorf("%s of %s is not attached", hook.Name, d.Name)
			}
		}
	}
	content, err := i.Content()
	if err != nil {
		return err
	}
	f, known := content.Frontends[lb.AddrPort{Addr: h.r.serviceIP, Port: h.r.port, Protocol: h.r.protocol}]
	if !known {
		return fmt.Errorf("the Service is no frontend")
	}
	var have []netip.Addr
	for _, id := range content.Tables[f.Views[lb.Internal].Table] {
		have = append(have, content.Backends[id].Addr)
	}
	slices.SortFunc(have, netip.Addr.Compare)
	if have = slices.Compact(have); !slices.Equal(have, backends) {
		return fmt.Errorf("the backends are %v, want %v", have, backends)
	}
	return nil
}

func (h *headgate) stop() {
	h.r.t.Helper()
	for _, a := range h.agents {
		a.Kill()
		if err := datapath.Cleanup(a.Root); err != nil {
			h.r.t.Fatal(err)
		}
	}
}
