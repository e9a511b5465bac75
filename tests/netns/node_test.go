package netns_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// node is a datapath in force with a planner, without the loop around them, so
// that a change is in the kernel when the method that makes it returns.
type node struct {
	tb      testing.TB
	cfg     datapath.Config
	dp      *datapath.Datapath
	planner *plan.Planner
	dropped map[string]uint64 // of the node, by reason, before the test
}

func config(tb testing.TB) datapath.Config {
	tb.Helper()
	return datapath.Config{
		Root: testenv.BPFRoot(tb), Cgroup: testenv.Cgroup(tb), Node: "node-a", Version: "test",
		Sizes: plan.Sizes{Frontends: 4, Slots: 16, Backends: 4, Services: 4, Addresses: 4}, SocketEntries: 1 << 12, Traffic: true,
	}
}

func mustNode(tb testing.TB) *node {
	tb.Helper()
	return mustNodeOf(tb, config(tb))
}

// mustNodeOf opens a datapath, goes on from what it holds and attaches it.
func mustNodeOf(tb testing.TB, cfg datapath.Config) *node {
	tb.Helper()
	n := mustOpen(tb, cfg)
	if err := n.dp.Attach(); err != nil {
		tb.Fatalf("attach: %v", err)
	}
	return n
}

func mustOpen(tb testing.TB, cfg datapath.Config) *node {
	tb.Helper()
	dp, err := datapath.Open(cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(dp.Close)
	n := &node{tb: tb, cfg: cfg, dp: dp}
	if n.planner, err = plan.Adopt(n.content(), plan.Sizes{}); err != nil {
		tb.Fatalf("adopt: %v", err)
	}
	return n
}

// anew is the node for another test, with nothing left of Services: loading the
// object takes longer than most tests.
func (n *node) anew(tb testing.TB) *node {
	tb.Helper()
	again := *n
	again.tb = tb
	for _, s := range n.planner.Services() {
		again.set(s.Name)
	}
	again.sweep()
	again.dropped = again.status().Drops
	return &again
}

func (n *node) apply(ops []plan.Op) {
	n.tb.Helper()
	if err := n.dp.Reserve(n.planner.Needs()); err != nil {
		n.tb.Fatalf("reserve: %v", err)
	}
	if _, err := n.dp.Apply(ops); err != nil {
		n.tb.Fatalf("apply: %v", err)
	}
}

// set makes the frontends of Service default/name what is given.
func (n *node) set(name string, frontends ...lb.Frontend) {
	n.tb.Helper()
	ops, err := n.planner.Set(lb.ServiceName{Namespace: "default", Name: name}, frontends)
	if err != nil {
		n.tb.Fatal(err)
	}
	n.apply(ops)
}

// sweep clears what nothing refers to any more.
func (n *node) sweep() {
	n.tb.Helper()
	n.apply(n.planner.Sweep())
}

func (n *node) setAddresses(kinds map[string]plan.AddressKind) {
	n.tb.Helper()
	addresses := map[netip.Addr]plan.AddressKind{}
	for a, k := range kinds {
		addresses[netip.MustParseAddr(a)] = k
	}
	n.apply(n.planner.SetNodeAddresses(addresses))
}

// setServiceCIDRs makes the addresses of the tests' Services those that only Services have.
func (n *node) setServiceCIDRs() {
	n.tb.Helper()
	ops, err := n.planner.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/64")})
	if err != nil {
		n.tb.Fatal(err)
	}
	n.apply(ops)
}

func (n *node) content() plan.Content {
	n.tb.Helper()
	c, err := n.dp.Content()
	if err != nil {
		n.tb.Fatal(err)
	}
	return c
}

// backendID returns the ID of a backend, 0 if it has none.
func (n *node) backendID(b *backend) uint32 {
	n.tb.Helper()
	for id, at := range n.content().Backends {
		if at == b.at {
			return id
		}
	}
	return 0
}

func (n *node) status() (s datapath.Status) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) (err error) { s, err = i.Status(); return err })
	return s
}

// drops returns what was refused of Service default/name, by reason.
func (n *node) drops(name string) map[string]uint64 {
	n.tb.Helper()
	out := map[string]uint64{}
	n.inspect(func(i *datapath.Reader) error {
		for id, s := range n.content().Services {
			if s.Name != name {
				continue
			}
			var err error
			if out, err = i.Drops(id); err != nil {
				return err
			}
		}
		return nil
	})
	return out
}

// socketEntries returns how many slots of the socket_nat map are in use.
func (n *node) socketEntries() (used uint32) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) error {
		counts, err := i.CountEntries()
		used = counts["socket_nat"]
		return err
	})
	return used
}

func (n *node) inspect(look func(*datapath.Reader) error) {
	n.tb.Helper()
	i, err := datapath.Inspect(n.cfg.Root)
	if err != nil {
		n.tb.Fatal(err)
	}
	defer i.Close()
	if err := look(i); err != nil {
		n.tb.Fatal(err)
	}
}

// frontend makes a frontend of "address:port/TCP" whose backends every client
// reaches. A NodePort is at the unspecified address.
func frontend(at string, backends ...*backend) lb.Frontend {
	f := lb.Frontend{AddrPort: mustAddrPort(at), Port: "main"}
	if f.Addr.IsUnspecified() {
		f.Kind = lb.NodePort
	}
	for _, b := range backends {
		f.Views[lb.Internal].Backends = append(f.Views[lb.Internal].Backends, b.at)
	}
	slices.SortFunc(f.Views[lb.Internal].Backends, lb.AddrPort.Compare)
	f.Views[lb.External] = f.Views[lb.Internal]
	return f
}

// at is an address without its protocol.
func at(s string) netip.AddrPort {
	text, _, _ := strings.Cut(s, "/")
	return netip.MustParseAddrPort(text)
}
