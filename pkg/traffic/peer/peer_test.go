package peer

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

func place(t *testing.T, name string) traffic.PlaceSpec {
	t.Helper()
	spec, err := traffic.BuiltinPlace(name, "x")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestServicesHaveEndpointsOfTheirOwn(t *testing.T) {
	for _, name := range []string{"node", "pair"} {
		services := newServices(place(t, name), "tcp", 10_000, 3)
		seen := make(map[netip.AddrPort]string)
		for _, s := range services {
			for _, a := range append([]netip.AddrPort{s.addr}, s.endpoints...) {
				if other := seen[a]; other != "" {
					t.Fatalf("%s: %s has %s, which %s has too", name, s.name, a, other)
				}
				seen[a] = s.name
			}
			if !serviceNet.Contains(s.addr.Addr()) {
				t.Fatalf("%s: %s is not in %s", name, s.addr, serviceNet)
			}
		}
		if one := services[asked(len(services))]; one.endpoints[0].Port() != askedPort || services[0].endpoints[0].Port() != wildcardPort {
			t.Errorf("%s: the asked Service has %v, the first %v", name, one.endpoints, services[0].endpoints)
		}
	}
}

func TestEveryServiceIsAskedOnce(t *testing.T) {
	services := newServices(place(t, "pair"), "tcp", 100, 3)
	all := targets(services, false, false)
	seen := make(map[netip.AddrPort]bool)
	for _, a := range all {
		seen[a] = true
	}
	if len(all) != 100 || len(seen) != 100 || all[0] == services[0].addr && all[1] == services[1].addr {
		t.Errorf("targets are %v, want each Service once in random order", all)
	}
	if diff := cmp.Diff(services[50].endpoints, targets(services, true, true), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("targets of the one that is asked, directly (-want +got):\n%s", diff)
	}
}

// example is two Services, of which the second is asked.
func example(t *testing.T) []service { return newServices(place(t, "pair"), "tcp", 2, 2) }

const wantIPTables = `*filter
:HG-FORWARD - [0:0]
-A FORWARD -m conntrack --ctstate NEW -j HG-FORWARD
-A HG-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:HG-SERVICES - [0:0]
:HG-MASQ - [0:0]
:HG-POST - [0:0]
:HG-S0 - [0:0]
:HG-E0-0 - [0:0]
:HG-E0-1 - [0:0]
:HG-S1 - [0:0]
:HG-E1-0 - [0:0]
:HG-E1-1 - [0:0]
-A HG-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j HG-S0
-A HG-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j HG-S1
-A PREROUTING -j HG-SERVICES
-A OUTPUT -j HG-SERVICES
-A POSTROUTING -j HG-POST
-A HG-MASQ -j MARK --set-xmark 0x4000/0x4000
-A HG-POST -m mark ! --mark 0x4000/0x4000 -j RETURN
-A HG-POST -j MARK --set-xmark 0x4000/0x0
-A HG-POST -j MASQUERADE --random-fully
-A HG-S0 ! -s 10.0.0.0/8 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j HG-MASQ
-A HG-S0 -m statistic --mode random --probability 0.5000000000 -j HG-E0-0
-A HG-E0-0 -s 10.101.0.3/32 -j HG-MASQ
-A HG-E0-0 -p tcp -m tcp -j DNAT --to-destination 10.101.0.3:8081
-A HG-S0 -j HG-E0-1
-A HG-E0-1 -s 10.101.0.4/32 -j HG-MASQ
-A HG-E0-1 -p tcp -m tcp -j DNAT --to-destination 10.101.0.4:8081
-A HG-S1 ! -s 10.0.0.0/8 -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j HG-MASQ
-A HG-S1 -m statistic --mode random --probability 0.5000000000 -j HG-E1-0
-A HG-E1-0 -s 10.101.0.1/32 -j HG-MASQ
-A HG-E1-0 -p tcp -m tcp -j DNAT --to-destination 10.101.0.1:8080
-A HG-S1 -j HG-E1-1
-A HG-E1-1 -s 10.101.0.2/32 -j HG-MASQ
-A HG-E1-1 -p tcp -m tcp -j DNAT --to-destination 10.101.0.2:8080
COMMIT
`

func TestRulesForIPTables(t *testing.T) {
	if diff := cmp.Diff(wantIPTables, iptablesRules(example(t))); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestRulesForNFTablesFindServicesInAMap(t *testing.T) {
	got := nftablesRules(example(t))
	for _, want := range []string{
		"10.96.0.1 . tcp . 80 : goto service-0,\n10.96.0.2 . tcp . 80 : goto service-1,\n",
		"chain service-1 {\nip daddr 10.96.0.2 tcp dport 80 ip saddr != 10.0.0.0/8 jump mark-for-masquerade\nnumgen random mod 2 vmap { 0 : goto endpoint-1-0, 1 : goto endpoint-1-1 }\n}",
		"chain endpoint-1-1 {\nip saddr 10.101.0.2 jump mark-for-masquerade\nmeta l4proto tcp dnat to 10.101.0.2:8080\n}",
		"ip daddr . meta l4proto . th dport vmap @service-ips",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("rules have no\n%s\nthey are\n%s", want, got)
		}
	}
}

// The programs that read the rules say whether they are any.
func TestRulesAreRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	name := fmt.Sprintf("hg-peer-test-%d", os.Getpid())
	ns, err := traffic.NewNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, protocol := range []string{"tcp", "udp"} {
		services := newServices(place(t, "pair"), protocol, 20, 3)
		for _, tc := range []struct {
			rules string
			args  []string
		}{
			{iptablesRules(services), []string{"iptables-restore", "--test"}},
			{nftablesRules(services), []string{"nft", "-c", "-f", "-"}},
		} {
			if _, err := exec.LookPath(tc.args[0]); err != nil {
				t.Errorf("make test installs %s: %s", tc.args[0], err)
				continue
			}
			cmd := exec.Command(tc.args[0], tc.args[1:]...)
			var output strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(tc.rules), &output, &output
			err := ns.Start(cmd)
			if err == nil {
				err = cmd.Wait()
			}
			if err != nil {
				t.Errorf("%s, %s: %s: %s", tc.args[0], protocol, err, output.String())
			}
		}
	}
}

func TestPeersThatCannotBeAreRefused(t *testing.T) {
	for want, spec := range map[string]Spec{
		`peer "moon": there are direct`:                      {Name: "moon", Place: "node", Services: 1, Endpoints: 1},
		`0 Services of 1 endpoints`:                          {Name: Direct, Place: "node", Endpoints: 1},
		`20000 Services of 3 endpoints: there can be 60000`:  {Name: Direct, Place: "node", Services: 20_000, Endpoints: 3},
		`place "zones": peers are compared in node and pair`: {Name: Direct, Place: "zones", Services: 1, Endpoints: 1},
		`clients of headgate-socket are on the node`:         {Name: HeadgateSocket, Place: "pair", Services: 1, Endpoints: 1},
		`clients of headgate-tc come from elsewhere`:         {Name: HeadgateTC, Place: "node", Services: 1, Endpoints: 1},
		`bring up nothing, Services 1: peer "nothing": the`:  {Name: "nothing", Place: "node", Services: 1, Endpoints: 1},
	} {
		err := spec.Validate()
		if strings.HasPrefix(want, "bring up") {
			_, err = Start(t.Context(), spec)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}
