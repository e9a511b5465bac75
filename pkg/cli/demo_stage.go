package cli

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
)

// demoPrefix begins the name of everything that a demo makes outside itself.
const demoPrefix = "headgate-demo"

// demoRunDir is where a demo keeps its files: always writable for root, gone
// with a restart of the machine.
const demoRunDir = "/run"

// demoBackend is a backend of the Service of examples/.
type demoBackend struct {
	name, node, zone string
	addrs            []netip.Addr
}

// What follows repeats what the manifests of examples/ say.

var demoBackends = []demoBackend{
	{"web-a1", "node-a", "zone-a", addrs("10.244.1.1", "fd00:244:1::1")},
	{"web-a2", "node-a", "zone-a", addrs("10.244.1.2", "fd00:244:1::2")},
	{"web-b1", "node-b", "zone-b", addrs("10.244.2.1", "fd00:244:2::1")},
}

const (
	demoNode    = "node-a"
	demoService = "default/web"

	demoTCPPort, demoUDPPort             = 80, 53
	demoTCPTargetPort, demoUDPTargetPort = 8080, 5353
	demoTCPNodePort                      = 30080
)

var (
	demoClusterIPs  = addrs("10.96.0.10", "fd00:96::10")
	demoClientAddrs = addrs("10.244.1.100", "fd00:244:1::64")
	demoNodeAddrs   = addrs("192.0.2.10", "2001:db8::10")
)

// stage is everything that a demo makes. The zero stage is empty.
type stage struct {
	dir       string // holds manifests/, bpf/ and agent.log
	topology  *traffic.Topology
	cgroup    *traffic.Cgroup
	servers   map[string]*traffic.Server // by name of the backend
	inside    *traffic.Client            // a pod of the node, in the cgroup
	outside   *traffic.Client            // the same pod, but not in the cgroup
	onNode    *traffic.Client            // the node's own processes, in the cgroup
	agent     *agentProcess
	tcp, udp  traffic.Result
	undo      []func() error
	failed    context.CancelCauseFunc // ends the demo
	cgroupTop string
}

func (s *stage) bpfRoot() string   { return filepath.Join(s.dir, "bpf", "headgate") }
func (s *stage) manifests() string { return filepath.Join(s.dir, "manifests") }

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
	d.screen.line(fmt.Sprintf("  client  %-12s %-15s pod on node-a, zone-a", demoClientAddrs[0], demoClientAddrs[1]))
	for _, b := range demoBackends {
		d.screen.line(fmt.Sprintf("  %s  %-12s %-15s pod on %s, %s", b.name, b.addrs[0], b.addrs[1], b.node, b.zone))
	}
	return d.step("network", func(func(string)) (string, error) {
		removed, err := d.stage.build(d.program)
		detail := "namespaces " + traffic.RunName(demoPrefix) + "-{node,client,web-a1,web-a2,web-b1}"
		if len(removed) > 0 {
			detail += fmt.Sprintf(" (removed %d leftovers of a killed demo)", len(removed))
		}
		return detail, err
	})
}

// build makes everything but the agent. What it removed of earlier runs it
// returns.
func (s *stage) build(program string) (removed []string, err error) {
	if s.cgroupTop, err = cgroup.Root(); err != nil {
		return nil, err
	}
	removed, err = traffic.RemoveStale(demoPrefix, s.cgroupTop, demoRunDir)
	if err != nil {
		return removed, err
	}
	for _, part := range []func() error{s.makeFiles, s.makeTopology, s.makeCgroup, s.startServers} {
		if err := part(); err != nil {
			return removed, err
		}
	}
	return removed, s.startClients(program)
}

func (s *stage) makeFiles() error {
	s.dir = filepath.Join(demoRunDir, traffic.RunName(demoPrefix))
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

func (s *stage) makeTopology() (err error) {
	spec := traffic.Spec{
		Name:      traffic.RunName(demoPrefix),
		NodeAddrs: demoNodeAddrs,
		Pods:      []traffic.Pod{{Name: "client", Addrs: demoClientAddrs}},
	}
	for _, b := range demoBackends {
		spec.Pods = append(spec.Pods, traffic.Pod{Name: b.name, Addrs: b.addrs})
	}
	if s.topology, err = traffic.NewTopology(spec); err == nil {
		s.onClose(s.topology.Close)
	}
	return err
}

func (s *stage) makeCgroup() (err error) {
	if s.cgroup, err = traffic.NewCgroup(s.cgroupTop, traffic.RunName(demoPrefix)); err == nil {
		s.onClose(s.cgroup.Close)
	}
	return err
}

func (s *stage) startServers() error {
	s.servers = make(map[string]*traffic.Server)
	for _, b := range demoBackends {
		server, err := traffic.Serve(s.topology.Pod(b.name), traffic.ServerSpec{
			Name: b.name, Addrs: b.addrs, TCPPort: demoTCPTargetPort, UDPPort: demoUDPTargetPort,
		})
		if err != nil {
			return err
		}
		s.servers[b.name] = server
		s.onClose(server.Close)
	}
	return nil
}

func (s *stage) startClients(program string) error {
	for _, c := range []struct {
		name   string
		to     **traffic.Client
		in     *traffic.Namespace
		cgroup *traffic.Cgroup
	}{
		{"the client pod", &s.inside, s.topology.Pod("client"), s.cgroup},
		{"the client outside the cgroup", &s.outside, s.topology.Pod("client"), nil},
		{"the client on the node", &s.onNode, s.topology.Node, s.cgroup},
	} {
		cmd := exec.Command(program, "demo", "client")
		cmd.Stderr = os.Stderr
		client, err := traffic.StartClient(c.in, c.cgroup, c.name, cmd)
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
