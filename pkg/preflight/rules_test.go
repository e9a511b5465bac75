package preflight

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// do runs a program in the network namespace of this thread, and gives it text to read.
func do(tb testing.TB, text []byte, program string, args ...string) {
	tb.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// restore is what iptables-restore reads: two Service ports, three endpoints.
const restore = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SVC-B - [0:0]
:KUBE-SEP-1 - [0:0]
:KUBE-SEP-2 - [0:0]
:KUBE-SEP-3 - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SEP-1 -p tcp -j DNAT --to-destination 10.244.1.1:8080
COMMIT
`

func TestRulesOfKubeProxyAreFoundWhoeverKeepsThem(t *testing.T) {
	const (
		legacy = "iptables-legacy: chains of 2 Service ports and 3 endpoints"
		nft    = "iptables-nft: chains of 2 Service ports and 3 endpoints"
		table  = "nftables: chains of 1 Service port and 2 endpoints"
	)
	in := func(mode string) KubeProxy { return KubeProxy{Runs: true, Mode: mode} }
	none, iptables, nftables, ipvs, unknown := KubeProxy{}, in("iptables"), in("nftables"), in("ipvs"), in("")
	for _, tc := range []struct {
		name string
		have []string
		runs KubeProxy
		want []string
	}{
		{"nothing", nil, none, []string{"ok kube-proxy-rules: there are none in iptables-legacy, iptables-nft, nftables and IPVS"}},
		{"legacy, and nobody", []string{"iptables-legacy-restore"}, none, []string{"warning kube-proxy-rules-stale: " + legacy + ", and no kube-proxy runs here", "ok translation: addresses are translated in iptables-legacy ip nat, which stay as they are"}},
		{"legacy", []string{"iptables-legacy-restore"}, iptables, []string{"ok kube-proxy-rules: " + legacy + ", kept by kube-proxy", "ok translation: addresses are translated in iptables-legacy ip nat, which stay as they are"}},
		{"legacy, of whatever mode", []string{"iptables-legacy-restore"}, unknown, []string{"ok kube-proxy-rules: " + legacy + ", kept by kube-proxy", "ok translation: addresses are translated in iptables-legacy ip nat, which stay as they are"}},
		{"both of iptables", []string{"iptables-legacy-restore", "iptables-nft-restore"}, iptables, []string{
			"warning kube-proxy-rules-stale: " + legacy + ", and kube-proxy keeps either these or others",
			"warning kube-proxy-rules-stale: " + nft + ", and kube-proxy keeps either these or others",
			"ok translation: addresses are translated in ip nat, iptables-legacy ip nat, which stay as they are"}},
		{"nftables after iptables", []string{"iptables-nft-restore", "nft"}, nftables, []string{
			"warning kube-proxy-rules-stale: " + nft + ", and kube-proxy is in mode nftables",
			"ok kube-proxy-rules: " + table + ", kept by kube-proxy",
			"ok translation: addresses are translated in ip nat, which stay as they are"}},
		{"nftables alone", []string{"nft"}, nftables, []string{"ok kube-proxy-rules: " + table + ", kept by kube-proxy", "warning kube-proxy-last-nat: no table but kube-proxy's translates addresses"}},
		{"ipvs", []string{"ipvs"}, ipvs, []string{"ok kube-proxy-rules: device kube-ipvs0, kept by kube-proxy"}},
		{"ipvs, left behind", []string{"ipvs"}, iptables, []string{"warning kube-proxy-rules-stale: device kube-ipvs0, and kube-proxy is in mode iptables"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.EnterNetns(t)
			for _, what := range tc.have {
				switch what {
				case "nft":
					do(t, []byte(nftablesText), "nft", "-f", "-")
				case "ipvs":
					if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}, PeerName: "other"}); err != nil {
						t.Fatal(err)
					}
				default:
					do(t, []byte(restore), what)
				}
			}
			r := &Report{}
			r.rules(tc.runs)
			wantFound(t, r, tc.want...)
		})
	}
}

// nftablesText is the table of kube-proxy for one Service of two endpoints.
const nftablesText = `table ip kube-proxy {
	chain nat-prerouting { type nat hook prerouting priority dstnat; }
	chain endpoint-AAAA-default/web/tcp/ { }
	chain endpoint-BBBB-default/web/tcp/ { }
	chain service-CCCC-default/web/tcp/ { }
	chain service-endpoints-check { }
}`

// A kube-proxy before 1.32 does not say of which families it has written rules.
func TestRulesSayOfWhichFamiliesTheyHaveServices(t *testing.T) {
	chain := func(family, table, name string) netdev.Chain {
		return netdev.Chain{Family: family, Table: table, Name: name}
	}
	for name, tc := range map[string]struct {
		chains     []netdev.Chain
		has4, has6 bool
	}{
		"iptables, one":   {[]netdev.Chain{chain("ip", "nat", "KUBE-SERVICES"), chain("ip", "nat", "KUBE-SVC-A"), chain("ip6", "nat", "KUBE-SERVICES")}, true, false},
		"iptables, both":  {[]netdev.Chain{chain("ip", "nat", "KUBE-SERVICES"), chain("ip", "nat", "KUBE-SVC-A"), chain("ip6", "nat", "KUBE-SVC-B")}, true, true},
		"nftables, other": {[]netdev.Chain{chain("ip", "kube-proxy", "services"), chain("ip6", "kube-proxy", "service-CCCC-default/web/tcp/")}, false, true},
	} {
		all := rulesOf(tc.chains)
		if len(all) != 1 || all[0].Has("IPv4") != tc.has4 || all[0].Has("IPv6") != tc.has6 {
			t.Errorf("%s: %+v, want IPv4 %t, IPv6 %t", name, all, tc.has4, tc.has6)
		}
	}
	if ipvs := (Rules{Mode: modeIPVS}); !ipvs.Has("IPv4") || !ipvs.Has("IPv6") {
		t.Error("IPVS has no chains, and lacks no family")
	}
}
