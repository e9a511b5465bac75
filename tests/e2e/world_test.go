package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
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
	crowd    *traffic.Server
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
	binaries, err := controlplane.Build(ctx, os.Stderr, controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager)
	if err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "headgate-e2e-"); err != nil {
		return err
	}
	spec := traffic.Spec{Name: traffic.RunName("headgate-e2e"), NodeAddrs: []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	for i := range pods {
		spec.Pods = append(spec.Pods, traffic.Pod{Name: podName(i), Addrs: podAddrs(i)})
	}
	spec.Pods = append(spec.Pods, traffic.Pod{Name: "crowd", Addrs: []netip.Addr{netip.MustParseAddr("10.249.0.1")}})
	if w.topology, err = traffic.NewTopology(spec); err != nil {
		return err
	}
	if err := w.gather(); err != nil {
		return err
	}
	w.cluster, err = controlplane.Start(ctx, controlplane.Config{
		Binaries: binaries, Dir: w.dir, Namespace: w.topology.Node,
		ServiceCIDRs: []string{"10.96.0.0/16", "fd00:96::/112"},
		Controllers:  []string{"endpointslice-controller", "endpointslice-mirroring-controller", "service-cidr-controller"},
	})
	return err
}

// gather makes every address of the crowd answer.
func (w *world) gather() error {
	ns := w.topology.Pod("crowd")
	err := w.topology.Node.Do(func() error {
		return addRoute("hg-crowd", crowd, netlink.Route{Gw: netip.MustParseAddr("10.249.0.1").AsSlice(), Flags: unix.RTNH_F_ONLINK})
	})
	if err != nil {
		return err
	}
	err = ns.Do(func() error {
		return addRoute("lo", crowd, netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST})
	})
	if err != nil {
		return err
	}
	w.crowd, err = traffic.Serve(ns, traffic.ServerSpec{Name: "crowd", Addrs: []netip.Addr{netip.IPv4Unspecified()}, TCPPort: 8080, UDPPort: 8080})
	return err
}

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

// addRoute adds a route to a prefix by a device of the calling thread's namespace.
func addRoute(device string, dst netip.Prefix, route netlink.Route) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	route.LinkIndex = link.Attrs().Index
	route.Dst = &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())}
	return netlink.RouteAdd(&route)
}
