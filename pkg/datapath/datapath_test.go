package datapath_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func config(tb testing.TB) datapath.Config {
	tb.Helper()
	return datapath.Config{
		Root: testenv.BPFRoot(tb), Cgroup: testenv.Cgroup(tb), Node: "node-a", Version: "test",
		Sizes: plan.Sizes{Frontends: 4, Slots: 32, Backends: 8, Services: 4, Addresses: 4, Peers: 4}, SocketEntries: 1024,
	}
}

func mustOpen(tb testing.TB, cfg datapath.Config) *datapath.Datapath {
	tb.Helper()
	d, err := datapath.Open(cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(d.Close)
	return d
}

func addrPort(a byte, port uint16) lb.AddrPort {
	return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 0, 0, a}), Port: port, Protocol: lb.TCP}
}

var v6 = lb.AddrPort{Addr: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: lb.UDP}

// someOps fills every map, with both families and all flags.
func someOps() []plan.Op {
	return []plan.Op{
		plan.PutBackend{ID: 1, Backend: addrPort(1, 8080)},
		plan.PutBackend{ID: 2, Backend: v6},
		plan.PutTable{Table: plan.Table{Offset: 15, Size: 3}, Backends: []uint32{1, 2, 1}},
		plan.PutService{ID: 1, Service: plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: lb.TCP}},
		plan.PutFrontend{Key: addrPort(9, 80), Value: plan.Frontend{Service: 1, Views: [lb.NumViews]plan.View{lb.Internal: {Table: plan.Table{Offset: 15, Size: 3}}, lb.External: {NoLocal: true}}}},
		plan.PutFrontend{Key: v6, Value: plan.Frontend{Service: 1, Kind: lb.ExternalIP, Filtered: true, Steering: lb.Steering{AffinityTimeout: 10800, PassiveHealth: lb.SwitchOn, CloseUDP: true}, Members: plan.Table{Offset: 15, Size: 3}}},
		plan.PutFrontend{Key: lb.AddrPort{Addr: netip.IPv4Unspecified(), Port: 30080, Protocol: lb.TCP}, Value: plan.Frontend{Service: 1, Kind: lb.NodePort}},
		plan.PutAddress{Addr: netip.MustParseAddr("::1"), Kind: plan.LoopbackAddress},
		plan.PutSourceRange{Range: plan.SourceRange{Service: 1, Prefix: netip.MustParsePrefix("10.0.0.0/9")}},
		plan.PutSourceRange{Range: plan.SourceRange{Service: 1, Prefix: netip.MustParsePrefix("2001:db8::/33")}},
		plan.PutServiceCIDRs{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/108")}},
		plan.PutAddress{Addr: netip.MustParseAddr("10.0.0.9"), Kind: plan.ServiceAddress | plan.NodeAddress},
		plan.PutPeer{ID: plan.FirstPeer, Peer: plan.Peer{Theirs: netip.MustParseAddr("10.1.0.2"), Ours: netip.MustParseAddr("10.1.0.1"), Ring: plan.RingOf("node-b"), MTU: 1500, Usable: true}},
		plan.PutPeerAddress{Addr: netip.MustParseAddr("10.1.0.2"), ID: plan.FirstPeer},
		plan.PutHome{ID: 1, Home: plan.FirstPeer},
		plan.PutHome{ID: 2, Home: plan.HomeHere},
	}
}

func mustApply(tb testing.TB, d *datapath.Datapath, ops ...plan.Op) {
	tb.Helper()
	if n, err := d.Apply(ops); err != nil || n != len(ops) {
		tb.Fatalf("applied %d of %d: %v", n, len(ops), err)
	}
}

func wantContent(tb testing.TB, d *datapath.Datapath, ops ...plan.Op) {
	tb.Helper()
	var m plan.Model
	for _, op := range ops {
		m.Apply(op)
	}
	got, err := d.Content()
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(m.Content().String(), got.String()); diff != "" {
		tb.Errorf("content (-want +got):\n%s", diff)
	}
}

func TestTheMapsHoldWhatTheModelHolds(t *testing.T) {
	d := mustOpen(t, config(t))
	ops := someOps()
	mustApply(t, d, ops...)
	wantContent(t, d, ops...)
	if d.Writes() != uint64(len(ops)) {
		t.Errorf("%d writes are counted, want %d", d.Writes(), len(ops))
	}
	more := []plan.Op{
		plan.DeleteAddress{Addr: netip.MustParseAddr("::1")}, plan.DeleteFrontend{Key: v6}, plan.DeleteFrontend{Key: v6},
		plan.Grace{}, plan.ClearBackend{ID: 2}, plan.ClearService{ID: 1},
		plan.PutFrontend{Key: addrPort(9, 80), Value: plan.Frontend{Service: 1}},
		plan.DeleteFrontend{Key: lb.AddrPort{Addr: netip.IPv4Unspecified(), Port: 30080, Protocol: lb.TCP}},
	}
	mustApply(t, d, more...)
	wantContent(t, d, append(ops, more...)...)
}

func TestWhatIsPinnedIsAdopted(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	before := mustInspect(t, cfg).Object
	d.Close()

	d = mustOpen(t, cfg)
	wantContent(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if d.Writes() != uint64(len(someOps())) {
		t.Errorf("adoption wrote: %d writes, want %d", d.Writes(), len(someOps()))
	}
	if after := mustInspect(t, cfg).Object; after != before {
		t.Errorf("object %s, want %s", after, before)
	}
}

func mustInspect(tb testing.TB, cfg datapath.Config) datapath.Status {
	tb.Helper()
	i, err := datapath.Inspect(cfg.Root)
	if err != nil {
		tb.Fatal(err)
	}
	defer i.Close()
	s, err := i.Status()
	if err != nil {
		tb.Fatal(err)
	}
	for _, h := range s.Hooks {
		if !h.Attached {
			tb.Errorf("hook %s is not attached", h.Name)
		}
	}
	return s
}

func TestMapsGrowWhileAttached(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := d.AnswerEchoes(time.Hour); err != nil {
		t.Fatal(err)
	}
	until := d.EchoesUntil()
	if err := d.Reserve(plan.Sizes{Frontends: 100, Slots: 1000, Backends: 300, Services: 50, Addresses: 70, Peers: 5}); err != nil {
		t.Fatal(err)
	}
	if got := d.EchoesUntil(); got != until || got == 0 {
		t.Errorf("peers get echoes until %s, want %s", got, until)
	}
	wantContent(t, d, someOps()...)
	last := plan.PutBackend{ID: 511, Backend: addrPort(200, 80)}
	mustApply(t, d, last)
	wantContent(t, d, append(someOps(), last)...)
	d.Close()
	wantContent(t, mustOpen(t, cfg), append(someOps(), last)...)
	mustInspect(t, cfg)
}

func TestASecondAgentIsRefused(t *testing.T) {
	cfg := config(t)
	mustOpen(t, cfg)
	otherRoot, otherCgroup := cfg, cfg
	otherRoot.Root += "-other"
	otherCgroup.Cgroup += "/other"
	if err := os.Mkdir(otherCgroup.Cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(otherCgroup.Cgroup)
	if _, err := datapath.Open(otherRoot); !errors.Is(err, datapath.ErrBusy) || !strings.Contains(err.Error(), cfg.Cgroup) {
		t.Errorf("a second open for the same cgroup says %v", err)
	}
	if _, err := datapath.Open(otherCgroup); !errors.Is(err, datapath.ErrBusy) || !strings.Contains(err.Error(), cfg.Root) {
		t.Errorf("a second open for the same pins says %v", err)
	}
	if _, err := os.Stat(otherRoot.Root); !os.IsNotExist(err) {
		t.Errorf("who is refused leaves %s: %v", otherRoot.Root, err)
	}
	if err := datapath.Cleanup(cfg.Root); !errors.Is(err, datapath.ErrBusy) {
		t.Errorf("cleanup under an agent says %v", err)
	}
}

// headgate migrate looks over and over whether an agent runs, by its lock; two removals at once
// are one.
func TestARemovalWaitsForWhoeverJustLooks(t *testing.T) {
	for name, before := range map[string]func(string) error{
		"somebody looks": func(string) error { return nil }, "somebody removes it, too": os.Remove,
	} {
		cfg := config(t)
		if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
			t.Fatal(err)
		}
		other, err := os.Open(cfg.Root)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = before(cfg.Root); other.Close() })
		if err := datapath.Cleanup(cfg.Root); err != nil {
			t.Errorf("a removal while %s: %v", name, err)
		}
		if _, err := os.Stat(cfg.Root); !os.IsNotExist(err) {
			t.Errorf("while %s: %s is there: %v", name, cfg.Root, err)
		}
	}
}

// Whoever names the mount in place of the agent's directory takes nothing from others.
func TestARemovalLeavesWhatOthersHavePinned(t *testing.T) {
	cfg := config(t)
	mustOpen(t, cfg).Close()
	others := filepath.Join(cfg.Root, "cilium", "globals")
	if err := os.MkdirAll(others, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := datapath.Cleanup(cfg.Root); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(cfg.Root); err != nil || len(left) != 1 || left[0].Name() != "cilium" {
		t.Errorf("below %s is %v (%v), want what others have there", cfg.Root, left, err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(cfg.Root); err != nil {
		t.Error(err)
	}
}

func TestAnUnusableMachineIsSaidInOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*datapath.Config)
		want  string
	}{
		"a root outside any BPF file system": {func(c *datapath.Config) { c.Root = t.TempDir() }, "mount -t bpf"},
		"a cgroup that is none":              {func(c *datapath.Config) { c.Cgroup = t.TempDir() }, "--cgroup"},
		"a cgroup that is missing":           {func(c *datapath.Config) { c.Cgroup += "/missing" }, "no such file"},
		"entries that are no power of two":   {func(c *datapath.Config) { c.SocketEntries = 1000 }, "power of two"},
	} {
		cfg := config(t)
		c.spoil(&cfg)
		_, err := datapath.Open(cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := datapath.Cleanup(cfg.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.Root); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", cfg.Root, err)
	}
	if _, err := datapath.Inspect(cfg.Root); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Errorf("inspect says %v", err)
	}
}
