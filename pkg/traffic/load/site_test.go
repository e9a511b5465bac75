package load

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// clientEnv makes the test program a client process.
const clientEnv = "HEADGATE_TEST_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(clientEnv) == "" {
		os.Exit(m.Run())
	}
	if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// mustSite makes a site with two servers on each machine for them.
func mustSite(tb testing.TB, topology string, cgroup *traffic.Cgroup) *Site {
	tb.Helper()
	requireRoot(tb)
	worker := func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), clientEnv+"=1")
		return cmd
	}
	spec, err := traffic.BuiltinTopology(topology, "")
	if err != nil {
		tb.Fatal(err)
	}
	site, err := NewSite(SiteSpec{
		Topology: topology, RunName: traffic.RunName("headgate-load-" + topology), Servers: 2 * len(spec.Servers), Port: 8080,
		Worker: worker, Cgroup: cgroup,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = site.Close() }) // some tests kill its client
	return site
}

func requireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") == "1" {
		tb.Fatal("needs root")
	}
	tb.Skip("needs root to make network namespaces")
}

// mustAsk runs a load on targets of a site, of which nothing may fail.
func mustAsk(tb testing.TB, site *Site, spec Spec) result.Run {
	tb.Helper()
	spec.Outside, spec.Timeout = true, 10*time.Second
	run, err := site.Client.Run(tb.Context(), spec, nil)
	if err != nil {
		tb.Fatal(err)
	}
	wantNoErrors(tb, run)
	return run
}

func TestEveryTopologyConnectsItsClientToAllServers(t *testing.T) {
	for name := range traffic.TopologyNames() {
		t.Run(name, func(t *testing.T) {
			site := mustSite(t, name, nil)
			targets := site.Targets(true, true)
			for _, kind := range []Kind{CRR, UDP, SendTo} {
				run := mustAsk(t, site, Spec{
					Kind: kind, Targets: targets, Connections: len(targets), Rate: 200, Duration: time.Second, PerSocket: 1, CheckPeer: true,
				})
				if len(run.Answers()) != len(site.Servers) {
					t.Errorf("%s: answers are %v, want some of each of %d servers", kind, run.Answers(), len(site.Servers))
				}
			}
		})
	}
}

func TestPodsOfTwoNodesTalkThroughTheTunnel(t *testing.T) {
	site := mustSite(t, "vxlan", nil)
	far := site.Servers[1]
	if node := site.Topology.Machine(far.Machine).Node; node != "node-b" {
		t.Fatalf("server 2 is on %s", node)
	}
	before := sentBy(t, site.Topology.Namespace("node-a"), "vx-node-b")
	run := mustAsk(t, site, Spec{Kind: CRR, Targets: far.Addrs[:1], Rate: 100, Duration: 100 * time.Millisecond})
	if sent := sentBy(t, site.Topology.Namespace("node-a"), "vx-node-b") - before; sent < 4*run.Completed {
		t.Errorf("the tunnel carried %d packets of %d connections, want at least 4 of each", sent, run.Completed)
	}
}

// sentBy returns how many packets a device sent.
func sentBy(tb testing.TB, ns *traffic.Namespace, device string) (packets uint64) {
	tb.Helper()
	err := ns.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			packets = link.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return packets
}

func TestTheClientOfATopologyHasManyAddresses(t *testing.T) {
	site := mustSite(t, "pair", nil)
	sources := []netip.Prefix{netip.MustParsePrefix("10.250.3.0/24"), netip.MustParsePrefix("fd00:250::/112")}
	run := mustAsk(t, site, Spec{Kind: CRR, Targets: site.Targets(true, true), Sources: sources, Rate: 200, Duration: 200 * time.Millisecond})
	if run.Completed < 39 {
		t.Errorf("%d connections, want 40", run.Completed)
	}
}

func TestAClientEndsALoadAndTakesTheNext(t *testing.T) {
	site := mustSite(t, "node", nil)
	ctx, cancel := context.WithCancel(t.Context())
	targets := site.Targets(true, true)
	first, err := site.Client.Run(ctx, Spec{Kind: CRR, Targets: targets, Rate: 200, Duration: time.Hour, Outside: true}, func(counting time.Time) {
		time.AfterFunc(time.Until(counting)+200*time.Millisecond, cancel)
	})
	if err != nil || !first.Interrupted || first.Completed == 0 || first.Failed > 0 {
		t.Fatalf("first load: %d completed, %v, error %v", first.Completed, first.Errors, err)
	}
	if next := mustAsk(t, site, Spec{Kind: CRR, Targets: targets, Rate: 100, Duration: 100 * time.Millisecond}); next.Interrupted {
		t.Errorf("the next load was ended, too: %+v", next)
	}
}

func TestAClientThatDiesIsReported(t *testing.T) {
	site := mustSite(t, "pair", nil)
	if err := site.Client.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := site.Client.Run(t.Context(), Spec{Kind: CRR, Targets: site.Targets(true, true), Duration: time.Second, Outside: true}, nil)
	if err == nil {
		t.Error("Run gives no error")
	}
}

func TestAClientRunsInItsCgroup(t *testing.T) {
	requireRoot(t)
	parent, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := traffic.NewCgroup(parent, traffic.RunName("headgate-load"))
	if err != nil {
		t.Fatal(err)
	}
	site := mustSite(t, "pair", cgroup)
	members, err := os.ReadFile(filepath.Join(cgroup.Path, "cgroup.procs"))
	if want := fmt.Sprintln(site.Client.PID()); err != nil || string(members) != want {
		t.Errorf("cgroup has processes %q, error %v, want %q", members, err, want)
	}
	// With the client still inside.
	if err := cgroup.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cgroup.Path); !os.IsNotExist(err) {
		t.Errorf("after Close the cgroup is still there: %v", err)
	}
}
