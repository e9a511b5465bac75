package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/controlplane"
)

// programs is where what takes part is.
type programs struct {
	own    string // a directory of this run, with headgate
	others string // etcd, kube-apiserver, kube-proxy
}

// findPrograms builds headgate, and says where the others are.
func findPrograms(ctx context.Context) (p programs, err error) {
	if p.others, err = controlplane.Built(ctx, controlplane.Etcd, controlplane.APIServer, controlplane.KubeProxy); err != nil {
		return p, err
	}
	if p.own, err = os.MkdirTemp("", "headgate-migrate-"); err != nil {
		return p, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", p.own, "./cmd/headgate")
	build.Stderr = os.Stderr
	return p, build.Run()
}

// namePrefix begins the name of everything that a drill makes outside itself.
const namePrefix = "headgate-migrate"

const outside = "outside" // the machine between the nodes, where clients outside the cluster are

// nodeNames are the nodes; each has a machine of pods that serve, and one of a pod that is a client.
var nodeNames = []string{"node-a", "node-b", "node-c"}

func serverOf(node string) string { return "serve-" + node[5:] }
func clientOf(node string) string { return "ask-" + node[5:] }

// nodeAddrs are the addresses of a node.
func nodeAddrs(i int) []netip.Addr {
	return addrs(fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("2001:db8::%x", i+1))
}

// podAddrs are the addresses of pod n of a node, of at most 255.
func podAddrs(node, n int) []netip.Addr {
	return addrs(fmt.Sprintf("10.244.%d.%d", node, n), fmt.Sprintf("fd00:10:244:%x::%x", node, n))
}

// servers are where backends of a node have their addresses.
func servers(node int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(podAddrs(node, 128)[0], 25), netip.PrefixFrom(podAddrs(node, 128)[1], 121)}
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func topologySpec() traffic.TopologySpec {
	spec := traffic.TopologySpec{Name: traffic.RunName(namePrefix), Machines: []traffic.Machine{
		{Name: outside, Forwards: true, Addrs: addrs("198.51.100.1", "2001:db8:1::1")},
	}}
	add := func(m traffic.Machine, to string) {
		m.Gateway = to
		spec.Machines = append(spec.Machines, m)
		spec.Links = append(spec.Links, traffic.Link{A: to, B: m.Name})
	}
	for i, node := range nodeNames {
		add(traffic.Machine{Name: node, Forwards: true, Addrs: nodeAddrs(i)}, outside)
		add(traffic.Machine{Name: serverOf(node), Node: node, Addrs: podAddrs(i, 1), Prefixes: servers(i)}, node)
		add(traffic.Machine{Name: clientOf(node), Node: node, Addrs: podAddrs(i, 2)}, node)
	}
	return spec
}

// world is what a drill takes place in.
type world struct {
	dir      string
	topology *traffic.Topology
	cluster  *controlplane.Cluster
	cgroups  map[string]*traffic.Cgroup // by node, and outside
	undo     []func() error
}

func (w *world) namespace(machine string) *traffic.Namespace { return w.topology.Namespace(machine) }

func (w *world) close() error {
	var errs []error
	for i := len(w.undo) - 1; i >= 0; i-- {
		errs = append(errs, w.undo[i]())
	}
	return errors.Join(errs...)
}

// newWorld makes nodes with an API server that all of them reach as their own.
func newWorld(ctx context.Context, p programs) (w *world, err error) {
	w = &world{cgroups: map[string]*traffic.Cgroup{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	top, err := cgroup.Root()
	if err != nil {
		return nil, err
	}
	const runDir = "/run"
	if _, err := traffic.RemoveStale(namePrefix, top, runDir); err != nil {
		return nil, err
	}
	w.dir = filepath.Join(runDir, traffic.RunName(namePrefix))
	if err := os.MkdirAll(filepath.Join(w.dir, "bpf"), 0o700); err != nil {
		return nil, err
	}
	w.undo = append(w.undo, func() error { return traffic.RemoveRunDir(w.dir) })
	if err := traffic.MountBPF(filepath.Join(w.dir, "bpf")); err != nil {
		return nil, err
	}
	if w.topology, err = traffic.NewTopology(topologySpec()); err != nil {
		return nil, err
	}
	w.undo = append(w.undo, w.topology.Close)
	for _, name := range append([]string{outside}, nodeNames...) {
		if w.cgroups[name], err = traffic.NewCgroup(top, traffic.RunName(namePrefix)+"-"+name); err != nil {
			return nil, err
		}
		w.undo = append(w.undo, w.cgroups[name].Close)
	}
	w.cluster, err = controlplane.Start(ctx, controlplane.Config{
		Binaries: p.others, Dir: w.dir, Namespace: w.namespace(outside), ServiceCIDRs: []string{"10.96.0.0/16", "fd00:96::/112"},
	})
	if err != nil {
		return nil, err
	}
	w.undo = append(w.undo, w.cluster.Close)
	for _, node := range nodeNames {
		if err := w.relay(node); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// relay has the API server answer on a node's loopback device, too.
func (w *world) relay(node string) error {
	const server = "127.0.0.1:6443"
	var l net.Listener
	if err := w.namespace(node).Do(func() (err error) { l, err = net.Listen("tcp", server); return err }); err != nil {
		return err
	}
	w.undo = append(w.undo, l.Close)
	dial := controlplane.Dialer(w.namespace(outside))
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			go func() {
				defer from.Close()
				to, err := dial(context.Background(), "tcp", server)
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, from); to.Close() }() // either end ends both
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return nil
}

// ip runs ip(8) in a machine.
func (w *world) ip(machine string, args ...string) error {
	cmd := exec.Command("ip", args...)
	cmd.Stderr = os.Stderr
	if err := w.namespace(machine).Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
