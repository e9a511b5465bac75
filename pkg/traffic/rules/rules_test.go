package rules

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic"
)

var pods = map[bool]netip.Prefix{false: netip.MustParsePrefix("10.0.0.0/8"), true: netip.MustParsePrefix("fd00::/16")}

// services returns Services in a family, with endpoints each.
func services(n, endpoints int, protocol string, ipv6 bool) []Service {
	service, endpoint := netip.MustParseAddr("10.96.0.0"), netip.MustParseAddr("10.101.0.0")
	if ipv6 {
		service, endpoint = netip.MustParseAddr("fd00:96::"), netip.MustParseAddr("fd00:101::")
	}
	all := make([]Service, n)
	for i := range all {
		service = service.Next()
		all[i].Protocol, all[i].Addr = protocol, netip.AddrPortFrom(service, 80)
		for range endpoints {
			endpoint = endpoint.Next()
			all[i].Endpoints = append(all[i].Endpoints, netip.AddrPortFrom(endpoint, 8080))
		}
	}
	return all
}

const wantIPTables = `:HG-S0 - [0:0]
:HG-E0-0 - [0:0]
:HG-E0-1 - [0:0]
:HG-S1 - [0:0]
:HG-E1-0 - [0:0]
:HG-E1-1 - [0:0]
-A HG-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j HG-S0
-A HG-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j HG-S1
-A HG-S0 ! -s 10.0.0.0/8 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j HG-MASQ
-A HG-S0 -m statistic --mode random --probability 0.5000000000 -j HG-E0-0
-A HG-E0-0 -s 10.101.0.1/32 -j HG-MASQ
-A HG-E0-0 -p tcp -m tcp -j DNAT --to-destination 10.101.0.1:8080
-A HG-S0 -j HG-E0-1
-A HG-E0-1 -s 10.101.0.2/32 -j HG-MASQ
-A HG-E0-1 -p tcp -m tcp -j DNAT --to-destination 10.101.0.2:8080
-A HG-S1 ! -s 10.0.0.0/8 -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j HG-MASQ
-A HG-S1 -m statistic --mode random --probability 0.5000000000 -j HG-E1-0
-A HG-E1-0 -s 10.101.0.3/32 -j HG-MASQ
-A HG-E1-0 -p tcp -m tcp -j DNAT --to-destination 10.101.0.3:8080
-A HG-S1 -j HG-E1-1
-A HG-E1-1 -s 10.101.0.4/32 -j HG-MASQ
-A HG-E1-1 -p tcp -m tcp -j DNAT --to-destination 10.101.0.4:8080
COMMIT
`

func TestRulesForIPTables(t *testing.T) {
	got := IPTables(services(2, 2, "tcp", false), pods[false])
	_, of, _ := strings.Cut(got, iptablesNAT)
	if diff := cmp.Diff(wantIPTables, of); diff != "" {
		t.Errorf("rules of Services (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"-A HG-SERVICES -d fd00:96::1/128 -p udp -m udp --dport 80 -j HG-S0\n", "-A HG-S0 ! -s fd00::/16 -d",
		"-A HG-E0-0 -s fd00:101::1/128 -j HG-MASQ\n-A HG-E0-0 -p udp -m udp -j DNAT --to-destination [fd00:101::1]:8080\n",
	} {
		if got := IPTables(services(1, 1, "udp", true), pods[true]); !strings.Contains(got, want) {
			t.Errorf("rules of IPv6 have no\n%s\nthey are\n%s", want, got)
		}
	}
}

func TestRulesForNFTablesFindServicesInAMap(t *testing.T) {
	for _, tc := range []struct {
		ipv6 bool
		want []string
	}{
		{false, []string{
			"10.96.0.1 . tcp . 80 : goto service-0,\n10.96.0.2 . tcp . 80 : goto service-1,\n",
			"chain service-1 {\nip daddr 10.96.0.2 tcp dport 80 ip saddr != 10.0.0.0/8 jump mark-for-masquerade\nnumgen random mod 2 vmap { 0 : goto endpoint-1-0, 1 : goto endpoint-1-1 }\n}",
			"chain endpoint-1-1 {\nip saddr 10.101.0.4 jump mark-for-masquerade\nmeta l4proto tcp dnat to 10.101.0.4:8080\n}",
			"ip daddr . meta l4proto . th dport vmap @service-ips", "type ipv4_addr . inet_proto",
		}},
		{true, []string{
			"ip6 daddr fd00:96::2 tcp dport 80 ip6 saddr != fd00::/16 jump", "meta l4proto tcp dnat to [fd00:101::4]:8080\n",
			"ip6 daddr . meta l4proto . th dport vmap @service-ips", "type ipv6_addr . inet_proto",
		}},
	} {
		got := strings.Join(NFTables(services(2, 2, "tcp", tc.ipv6), pods[tc.ipv6]), "")
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("rules have no\n%s\nthey are\n%s", want, got)
			}
		}
	}
}

func TestRulesForNFTablesRefuseWhatHasNoEndpoints(t *testing.T) {
	all := services(2, 1, "udp", false)
	all[0].Endpoints = nil
	got := strings.Join(NFTables(all, pods[false]), "")
	for _, want := range []string{
		"add element ip headgate-bench no-endpoint-services {\n10.96.0.1 . udp . 80 : goto refused,\n}", "chain refused {\nreject\n}",
		"add element ip headgate-bench service-ips {\n10.96.0.2 . udp . 80 : goto service-1,\n}",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("rules have no\n%s\nthey are\n%s", want, got)
		}
	}
}

func TestNoTransactionIsLarge(t *testing.T) {
	transactions := NFTables(services(5000, 3, "tcp", false), pods[false])
	all := strings.Join(transactions, "")
	if n := strings.Count(all, "chain service-"); n < 5000 || strings.Count(all, "goto service-4999,") != 1 {
		t.Errorf("there are %d chains of Services, want 5000 and an element for each", n)
	}
	for i, text := range transactions {
		if n := strings.Count(text, "chain endpoint-"); n > endpointsAtOnce+3 {
			t.Errorf("transaction %d has %d endpoints, want about %d", i, n, endpointsAtOnce)
		}
	}
}

// The programs that read the rules say whether they are any.
func TestRulesAreRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	for _, ipv6 := range []bool{false, true} {
		iptables := map[bool]string{false: "iptables-restore", true: "ip6tables-restore"}[ipv6]
		for _, protocol := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprintf("%s %t", protocol, ipv6), func(t *testing.T) {
				ns, err := traffic.NewNamespace(fmt.Sprintf("hg-rules-%d", os.Getpid()))
				if err != nil {
					t.Fatal(err)
				}
				defer ns.Close()
				all := services(1200, 3, protocol, ipv6)
				feed(t, ns, IPTables(all, pods[ipv6]), iptables)
				all[0].Endpoints, all[1199].Endpoints = nil, nil
				for _, transaction := range append(NFTables(all, pods[ipv6]), NFTables(all[:1], pods[ipv6])...) {
					feed(t, ns, transaction, "nft", "-f", "-")
				}
			})
		}
	}
}

func feed(t *testing.T, ns *traffic.Namespace, input, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("make test installs %s: %s", program, err)
	}
	cmd := exec.Command(program, args...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	err := ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		text := output.String()
		t.Fatalf("%s: %s: %s", program, err, text[:min(len(text), 500)])
	}
}
