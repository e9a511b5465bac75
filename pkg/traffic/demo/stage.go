package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/examples"
	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// namePrefix begins the name of everything that a demo makes outside itself.
const namePrefix = "headgate-demo"

// runDir is where a demo keeps its files: always writable for root, gone
// with a restart of the machine.
const runDir = "/run"

// backend is a backend of the Service of examples/.
type backend struct {
	name, node, zone string
	addrs            []netip.Addr
}

// What follows repeats what the manifests of examples/ say.

var backends = []backend{
	{"web-a1", "node-a", "zone-a", addrs("10.244.1.1", "fd00:244:1::1")},
	{"web-a2", "node-a", "zone-a", addrs("10.244.1.2", "fd00:244:1::2")},
	{"web-b1", "node-b", "zone-b", addrs("10.244.2.1", "fd00:244:2::1")},
}

const (
	nodeName    = "node-a"
	serviceName = "default/web"

	tcpPort, udpPort             = 80, 53
	tcpTargetPort, udpTargetPort = 8080, 5353
	tcpNodePort                  = 30080
)

var (
	clusterIPs  = addrs("10.96.0.10", "fd00:96::10")
	clientAddrs = addrs("10.244.1.100", "fd00:244:1::64")
	nodeAddrs   = addrs("192.0.2.10", "2001:db8::10")
)

// stage is everything that a demo makes. The zero stage is empty.
type stage struct {
	dir       string // holds manifests/, bpf/ and agent.log
	topology  *traffic.Topology
	cgroup    *traffic.Cgroup
	servers   map[string]*serve.Server // by name of the backend
	inside    *load.Client             // a pod of the node, in the cgroup
	outside   *load.Client             // the same pod, but not in the cgroup
	onNode    *load.Client             // the node's own processes, in the cgroup
	agent     *agentProcess
	tcp, udp  choices
	undo      []func() error
	failed    context.CancelCauseFunc // ends the demo
	cgroupTop string
}

func (s *stage) bpfRoot() string   { return filepath.Join(s.dir, "bpf", "headgate") }
func (s *stage) manifests() string { return filepath.Join(s.dir, "manifests") }
func (s *stage) stateDir() string  { return filepath.Join(s.dir, "state") }

// node is the namespace of the node.
func (s *stage) node() *traffic.Namespace { return s.topology.Namespace(nodeMachine) }

func (s *stage) onClose(undo func() error) { s.undo = append(s.undo, undo) }

// close removes what was made, the last first.
func (s *stage) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

func (d *demo) makeNetwork(context.Context) error {
	d.screen.line("Headgate demo: a client and a node with three backends in two zones, as network namespaces")
	d.screen.line(fmt.Sprintf("  client  %-12s %-15s pod on node-a, zone-a", clientAddrs[0], clientAddrs[1]))
	for _, b := range backends {
		d.screen.line(fmt.Sprintf("  %s  %-12s %-15s pod on %s, %s", b.name, b.addrs[0], b.addrs[1], b.node, b.zone))
	}
	return d.step("network", func(func(string)) (string, error) {
		removed, err := d.stage.build(d.worker)
		detail := "namespaces " + traffic.RunName(namePrefix) + "-{node,client,web-a1,web-a2,web-b1}"
		if len(removed) > 0 {
			detail += fmt.Sprintf(" (removed %d leftovers of a killed demo)", len(removed))
		}
		return detail, err
	})
}

// build makes everything but the agent. What it removed of earlier runs it
// returns.
func (s *stage) build(worker func() *exec.Cmd) (removed []string, err error) {
	if s.cgroupTop, err = cgroup.Root(); err != nil {
		return nil, err
	}
	removed, err = traffic.RemoveStale(namePrefix, s.cgroupTop, runDir)
	if err != nil {
		return removed, err
	}
	for _, part := range []func() error{s.makeFiles, s.makeTopology, s.makeCgroup, s.startServers} {
		if err := part(); err != nil {
			return removed, err
		}
	}
	return removed, s.startClients(worker)
}

func (s *stage) makeFiles() error {
	s.dir = filepath.Join(runDir, traffic.RunName(namePrefix))
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "bpf"), s.manifests()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	s.onClose(func() error { return traffic.RemoveRunDir(s.dir) })
	if err := copyManifests(examples.FS, s.manifests()); err != nil {
		return err
	}
	// Always one of our own: what the demo pins is gone with it.
	return traffic.MountBPF(filepath.Join(s.dir, "bpf"))
}

func copyManifests(from fs.FS, to string) error {
	names, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// The machines that are no backends. What stands for a pod on another node is
// behind this one, too.
const nodeMachine, clientPod = "node", "client"

func (s *stage) makeTopology() (err error) {
	spec := traffic.TopologySpec{
		Name:     traffic.RunName(namePrefix),
		Machines: []traffic.Machine{{Name: nodeMachine, Addrs: nodeAddrs, Forwards: true}},
	}
	for _, pod := range append([]backend{{name: clientPod, addrs: clientAddrs}}, backends...) {
		spec.Machines = append(spec.Machines, traffic.Machine{Name: pod.name, Node: nodeMachine, Gateway: nodeMachine, Addrs: pod.addrs})
		spec.Links = append(spec.Links, traffic.Link{A: nodeMachine, B: pod.name})
	}
	if s.topology, err = traffic.NewTopology(spec); err == nil {
		s.onClose(s.topology.Close)
	}
	return err
}

func (s *stage) makeCgroup() (err error) {
	if s.cgroup, err = traffic.NewCgroup(s.cgroupTop, traffic.RunName(namePrefix)); err == nil {
		s.onClose(s.cgroup.Close)
	}
	return err
}

func (s *stage) startServers() error {
	s.servers = make(map[string]*serve.Server)
	for _, b := range backends {
		var endpoints []serve.Endpoint
		for _, at := range append(targets(b.addrs, tcpTargetPort), targets(b.addrs, udpTargetPort)...) {
			endpoints = append(endpoints, serve.Endpoint{Name: b.name, Addr: at})
		}
		server, err := serve.Start(endpoints, serve.Options{Within: s.topology.Namespace(b.name).Do})
		if err != nil {
			return err
		}
		s.servers[b.name] = server
		s.onClose(server.Close)
	}
	return nil
}

func (s *stage) startClients(worker func() *exec.Cmd) error {
	for _, c := range []struct {
		name   string
		to     **load.Client
		in     string // the machine
		cgroup *traffic.Cgroup
	}{
		{"the client pod", &s.inside, clientPod, s.cgroup},
		{"the client outside the cgroup", &s.outside, clientPod, nil},
		{"the client on the node", &s.onNode, nodeMachine, s.cgroup},
	} {
		cmd := worker()
		cmd.Stderr = os.Stderr
		client, err := load.StartClient(s.topology.Namespace(c.in), c.cgroup, c.name, cmd)
		if err != nil {
			return err
		}
		*c.to = client
		s.onClose(client.Close)
	}
	return nil
}

func addrs(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParseAddr(text)
	}
	return list
}

func targets(addrs []netip.Addr, port uint16) []netip.AddrPort {
	list := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		list[i] = netip.AddrPortFrom(addr, port)
	}
	return list
}

func targetList(targets []netip.AddrPort) string {
	texts := make([]string, len(targets))
	for i, target := range targets {
		texts[i] = target.String()
	}
	return strings.Join(texts, " and ")
}
