package preflight

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"

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
