package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/serve"
	"github.com/headgate/headgate/tests/controlplane"
	"github.com/headgate/headgate/tests/testenv"
)

// The nodes that there are. The agent is on the first; the other has no agent,
// only pods.
const (
	thisNode  = "node-a"
	otherNode = "node-b"
)

// pods is how many network namespaces there are for servers.
const pods = 6

// crowd is a range of which every address is served in one namespace, for pods
// that are many.
var crowd = netip.MustParsePrefix("10.250.0.0/16")

// podAddrs returns the addresses of a namespace for servers.
func podAddrs(i int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 244, byte(i), 10}),
		netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%x::10", i)),
	}
}

// world is the machine and the control plane that all tests share: a start takes
// a while, and tests keep apart by namespaces of Kubernetes.
type world struct {
	once     sync.Once
	err      error
	dir      string
	topology *traffic.Topology
	cluster  *controlplane.Cluster
	crowd    *serve.Server
	stages   int // tests that have used it
}

var theWorld world

// mustWorld returns the world, which the first test makes.
func mustWorld(tb testing.TB) *world {
	tb.Helper()
	testenv.Need(tb)
	theWorld.once.Do(func() { theWorld.err = theWorld.make(context.Background()) })
	if theWorld.err != nil {
		tb.Fatal(theWorld.err)
	}
	theWorld.stages++
	return &theWorld
}

func (w *world) make(ctx context.Context) (err error) {
	binaries, err := controlplane.Built(ctx, controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager)
	if err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "headgate-e2e-"); err != nil {
		return err
	}
	if w.topology, err = traffic.NewTopology(topologySpec()); err != nil {
		return err
	}
	everywhere := []serve.Endpoint{{Name: "crowd", Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), 8080)}}
	if w.crowd, err = serve.Start(everywhere, serve.Options{Within: w.topology.Namespace("crowd").Do}); err != nil {
		return err
	}
	w.cluster, err = controlplane.Start(ctx, controlplane.Config{
		Binaries: binaries, Dir: w.dir, Namespace: w.node(),
		ServiceCIDRs: []string{"10.96.0.0/16", "fd00:96::/112"},
		Controllers:  []string{"endpointslice-controller", "endpointslice-mirroring-controller", "service-cidr-controller"},
	})
	return err
}

// topologySpec is the node, with a pod for each server and one for the crowd.
func topologySpec() traffic.TopologySpec {
	spec := traffic.TopologySpec{Name: traffic.RunName("headgate-e2e"), Machines: []traffic.Machine{
		{Name: thisNode, Forwards: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
	}}
	crowded := traffic.Machine{
		Name: "crowd", Addrs: []netip.Addr{netip.MustParseAddr("10.249.0.1"), netip.MustParseAddr("fd00:10:249::1")}, Prefixes: []netip.Prefix{crowd},
	}
	machines := []traffic.Machine{crowded}
	for i := range pods {
		machines = append(machines, traffic.Machine{Name: podName(i), Addrs: podAddrs(i)})
	}
	for _, m := range machines {
		m.Node, m.Gateway = thisNode, thisNode
		spec.Machines = append(spec.Machines, m)
		spec.Links = append(spec.Links, traffic.Link{A: thisNode, B: m.Name})
	}
	return spec
}

// node is the namespace of the node that the agent is on.
func (w *world) node() *traffic.Namespace { return w.topology.Namespace(thisNode) }

func (w *world) close() error {
	var errs []error
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	if w.crowd != nil {
		errs = append(errs, w.crowd.Close())
	}
	if w.topology != nil {
		errs = append(errs, w.topology.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(filepath.Clean(w.dir)))
	}
	return errors.Join(errs...)
}

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }
