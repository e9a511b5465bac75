package raw

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
)

func mustTopology(tb testing.TB) *traffic.Topology {
	tb.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") == "1" {
			tb.Fatal("needs root")
		}
		tb.Skip("needs root to make network namespaces")
	}
	plan, err := traffic.BuiltinTopology("pair", traffic.RunName("headgate-test")+"-raw")
	if err != nil {
		tb.Fatal(err)
	}
	topology, err := traffic.NewTopology(plan)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := topology.Close(); err != nil {
			tb.Error(err)
		}
	})
	return topology
}

// received returns what the server's machine receives meanwhile: the packets
// have come through the node, which forwards nothing that is not valid.
func received(tb testing.TB, topology *traffic.Topology, send func()) uint64 {
	tb.Helper()
	count := func() uint64 {
		n, err := topology.Received("server", "hg-node-a")
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	before := count()
	send()
	time.Sleep(100 * time.Millisecond) // the rest is still in a queue
	return count() - before
}

func TestFloodsArriveBehindTheNode(t *testing.T) {
	topology := mustTopology(t)
	machine, device := topology.NextToClient()
	if err := EnableGRO(topology.Namespace(machine).Path(), device); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		kind            Kind
		method          Method
		target, sources string
	}{
		{SYN, Ring, "10.101.0.1:80", "10.250.0.0/16"}, {SYN, Live, "10.101.0.1:80", "10.250.0.0/16"},
		{UDP, Ring, "[fd00:100:1::1]:53", "fd00:250::/64"}, {UDP, Live, "[fd00:100:1::1]:53", "fd00:250::/64"},
		{FirstFragments, Ring, "10.101.0.1:53", "10.250.0.0/16"}, {LaterFragments, Ring, "10.101.0.1:53", "10.250.0.0/16"},
	} {
		s := Spec{
			Kind: tc.kind, Method: tc.method, Target: netip.MustParseAddrPort(tc.target), Sources: netip.MustParsePrefix(tc.sources),
			Namespace: topology.Namespace("client").Path(), Rate: 5000, Duration: time.Second,
		}
		var sent uint64
		got := received(t, topology, func() {
			r, err := Run(t.Context(), s)
			if err != nil {
				t.Fatalf("%s by %s: %v", tc.kind, tc.method, err)
			}
			sent = r.Completed
		})
		if sent < 3333 || sent > 5000 {
			t.Errorf("%s by %s: sent %d in a second at 5000 a second", tc.kind, tc.method, sent)
		}
		least := sent * 9 / 10
		if tc.method == Live {
			least = sent / 4 // they come in bursts, which the queue of a veth does not hold
		}
		if got < least {
			t.Errorf("%s by %s: %d of %d arrived", tc.kind, tc.method, got, sent)
		}
	}
}

func TestTheCeilingOfBothMethodsIsMeasured(t *testing.T) {
	topology := mustTopology(t)
	for _, method := range []Method{Ring, Live} {
		c, err := Ceiling(t.Context(), Spec{
			Kind: UDP, Method: method, Target: netip.MustParseAddrPort("10.101.0.1:80"), Sources: netip.MustParsePrefix("10.250.0.0/16"),
			Namespace: topology.Namespace("client").Path(),
		})
		if err != nil || c.PerSecond < 10_000 {
			t.Errorf("ceiling by %s is %+v, %v", method, c, err)
		}
		t.Logf("%s: %.0f packets/s (%s)", method, c.PerSecond, c.How)
	}
}

func TestAFloodThatMakesNoSenseIsRefused(t *testing.T) {
	good := Spec{
		Kind: SYN, Method: Ring, Target: netip.MustParseAddrPort("10.101.0.1:80"), Sources: netip.MustParsePrefix("10.250.0.0/16"),
		Namespace: "/run/netns/x", Duration: time.Second,
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		`kind "x"`:           func(s *Spec) { s.Kind = "x" },
		`method "x"`:         func(s *Spec) { s.Method = "x" },
		"by live frames":     func(s *Spec) { s.Kind, s.Method = LaterFragments, Live },
		"no namespace":       func(s *Spec) { s.Namespace = "" },
		"write an address":   func(s *Spec) { s.Target = netip.AddrPort{} },
		"write a prefix":     func(s *Spec) { s.Sources = netip.Prefix{} },
		"size is 9000":       func(s *Spec) { s.Size = 9000 },
		"rate is -1":         func(s *Spec) { s.Rate = -1 },
		"duration is 0s":     func(s *Spec) { s.Duration = 0 },
		"there can be 1 to ": func(s *Spec) { s.Senders = 1000 },
	} {
		s := good
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}
