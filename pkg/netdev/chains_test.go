package netdev_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestChainsOfEveryKindAreListed(t *testing.T) {
	testenv.EnterNetns(t)
	if got := mustChains(t); len(got) > 0 {
		t.Fatalf("a fresh network has %q", got)
	}
	if text, err := os.ReadFile("/proc/thread-self/net/ip_tables_names"); err == nil && len(text) > 0 {
		t.Errorf("asking has made the tables %q", text)
	}
	do(t, "nft", "add table ip kube-proxy; add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100; }; add chain ip kube-proxy service-ABC; add table inet filter; add chain inet filter in { type filter hook input priority 0; }")
	want := []string{"ip kube-proxy nat-prerouting hooked nat", "ip kube-proxy service-ABC", "inet filter in hooked"}
	if diff := cmp.Diff(want, mustChains(t)); diff != "" {
		t.Errorf("nftables (-want +got):\n%s", diff)
	}
	do(t, "nft", "flush ruleset")
	do(t, "iptables-nft", "-t", "nat", "-N", "KUBE-SERVICES")
	if got := mustChains(t); !slices.Contains(got, "ip nat KUBE-SERVICES") {
		t.Errorf("iptables-nft: %q", got)
	}
	do(t, "nft", "flush ruleset")
	for _, tool := range []string{"iptables-legacy", "ip6tables-legacy"} {
		do(t, tool, "-t", "nat", "-N", "KUBE-SERVICES")
		do(t, tool, "-t", "nat", "-N", "KUBE-SVC-ABC")
		do(t, tool, "-t", "nat", "-A", "KUBE-SERVICES", "-p", "tcp", "-m", "comment", "--comment", "default/web", "--dport", "80", "-j", "KUBE-SVC-ABC")
	}
	want = nil
	for _, family := range []string{"ip", "ip6"} {
		for _, rest := range []string{" hooked nat", "KUBE-SERVICES", "KUBE-SVC-ABC"} {
			want = append(want, "legacy "+family+" nat "+rest)
		}
	}
	if diff := cmp.Diff(want, mustChains(t)); diff != "" {
		t.Errorf("iptables-legacy (-want +got):\n%s", diff)
	}
}

func mustChains(tb testing.TB) (lines []string) {
	tb.Helper()
	all, err := netdev.Chains()
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range all {
		line := strings.Join([]string{c.Family, c.Table, c.Name}, " ")
		if c.Legacy {
			line = "legacy " + line
		}
		if c.Hooked {
			line += " hooked"
		}
		if c.NAT {
			line += " nat"
		}
		lines = append(lines, line)
	}
	return lines
}

func do(tb testing.TB, program string, args ...string) {
	tb.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}
