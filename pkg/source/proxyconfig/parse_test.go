package proxyconfig

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
)

// defaults are kube-proxy's.
func defaults() Config {
	return Config{
		Client:           Client{ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10},
		PrimaryIP:        netip.MustParseAddr("0.0.0.0"),
		HealthzAddress:   "0.0.0.0:10256",
		MetricsAddress:   "127.0.0.1:10249",
		NodePortLoopback: true,
		Local:            Local{Mode: LocalClusterCIDR},
		OOMScoreAdj:      -999,
		Conntrack: Conntrack{
			MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour,
		},
		SyncPeriod:       30 * time.Second,
		ConfigSyncPeriod: 15 * time.Minute,
		FeatureGates:     map[string]bool{},
	}
}

func TestWhatKubeadmWritesHasNothingToWarnOf(t *testing.T) {
	got, warnings, err := Load("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Client.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	want.Local.ClusterCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/56")
	wantSame(t, want, got)
	wantWarnings(t, warnings)
}

func TestEveryFieldIsReadOrWarnedOf(t *testing.T) {
	got, warnings, err := Load("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, Config{
		Client:           Client{Kubeconfig: "/etc/kube-proxy.conf", ContentType: "application/json", QPS: 7.5, Burst: 20},
		NodeName:         "node-1.example.org",
		PrimaryIP:        netip.MustParseAddr("192.0.2.10"),
		HealthzAddress:   "[2001:db8::1]:10356",
		MetricsAddress:   "0.0.0.0:10249",
		BindHardFail:     true,
		Profiling:        true,
		NodePorts:        NodePorts{CIDRs: prefixes("192.0.2.0/24", "127.0.0.0/8")},
		NodePortLoopback: true,
		Local:            Local{Mode: LocalBridgeInterface, ClusterCIDRs: prefixes("10.244.0.0/16"), Bridge: "cni0"},
		MasqueradeAll:    true,
		OOMScoreAdj:      -500,
		Conntrack: Conntrack{
			MaxPerCore: 1, Min: 2, TCPEstablishedTimeout: 3 * time.Second, TCPCloseWaitTimeout: 4 * time.Second,
			TCPBeLiberal: true, UDPTimeout: 5 * time.Second, UDPStreamTimeout: 6 * time.Second,
		},
		SyncPeriod:       13 * time.Second,
		ConfigSyncPeriod: 7 * time.Minute,
		FeatureGates:     map[string]bool{"KubeProxyNFTablesLocalhostNodePorts": true},
	}, got)
	for i := range warnings {
		warnings[i].File = strings.TrimPrefix(warnings[i].File, "testdata/every-field.yaml")
	}
	wantWarnings(t, warnings,
		`clientConnection.acceptContentTypes "application/json": Headgate accepts protobuf and JSON`,
		`detectLocal.interfaceNamePrefix "veth": applies with detectLocalMode InterfaceNamePrefix only`,
		`featureGates.KubeProxyNFTablesLocalhostNodePorts "true": Headgate has no such feature gate`,
		`iptables.localhostNodePorts "true": applies in mode iptables only; elsewhere name localhost in nodePortAddresses`,
		`iptables.masqueradeAll "true": applies in the modes iptables and ipvs only`,
		`iptables.masqueradeBit "15": Headgate needs no packet mark`,
		`iptables.minSyncPeriod "2s": changes are programmed as they come`,
		`iptables.syncPeriod "11s": applies in mode iptables only`,
		`ipvs.excludeCIDRs "["198.51.100.0/24"]": applies to IPVS only`,
		`ipvs.minSyncPeriod "3s": changes are programmed as they come`,
		`ipvs.scheduler "wlc": applies to IPVS only`,
		`ipvs.strictARP "true": applies to IPVS only`,
		`ipvs.syncPeriod "12s": applies in mode ipvs only`,
		`ipvs.tcpFinTimeout "2s": applies to IPVS only`,
		`ipvs.tcpTimeout "1s": applies to IPVS only`,
		`ipvs.udpTimeout "3s": applies to IPVS only`,
		`logging.flushFrequency "5s": what is logged is set with the flags --log-level and --log-format`,
		`logging.format "json": what is logged is set with the flags --log-level and --log-format`,
		`logging.options.json.splitStream "true": what is logged is set with the flags --log-level and --log-format`,
		`logging.options.text.infoBufferSize "1Ki": what is logged is set with the flags --log-level and --log-format`,
		`logging.options.text.splitStream "true": what is logged is set with the flags --log-level and --log-format`,
		`logging.verbosity "2": what is logged is set with the flags --log-level and --log-format`,
		`logging.vmodule "[{"filePattern":"proxier","verbosity":4}]": what is logged is set with the flags --log-level and --log-format`,
		`mode "nftables": Headgate takes the place of every mode; it only says which of the sections below counts`,
		`nftables.masqueradeBit "16": Headgate needs no packet mark`,
		`nftables.minSyncPeriod "4s": changes are programmed as they come`,
		`nodePortAddresses: has no IPv6 range, so NodePorts answer on every IPv6 address of the node`,
		`portRange "30000-31000": kube-proxy does not use it any more either`,
		`showHiddenMetricsForVersion "1.35": Headgate has no hidden metrics`,
		`windowsRunAsService "true": applies to Windows only`,
		`winkernel.enableDSR "true": applies to Windows only`,
		`winkernel.forwardHealthCheckVip "true": applies to Windows only`,
		`winkernel.networkName "l2bridge": applies to Windows only`,
		`winkernel.rootHnsEndpointName "cbr0": applies to Windows only`,
		`winkernel.sourceVip "192.0.2.5": applies to Windows only`,
	)
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestWhatAFieldMeans(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		change     func(*Config)
	}{
		{"nothing is the default", "", func(*Config) {}},
		{"an IPv6 bindAddress turns the default addresses to IPv6", "bindAddress: '::'", func(c *Config) {
			c.PrimaryIP, c.HealthzAddress, c.MetricsAddress = netip.IPv6Unspecified(), "[::]:10256", "[::1]:10249"
		}},
		{"an address without a port gets the default port", "{metricsBindAddress: '::', healthzBindAddress: 127.0.0.1}", func(c *Config) {
			c.HealthzAddress, c.MetricsAddress = "127.0.0.1:10256", "[::]:10249"
		}},
		{"mode iptables lets NodePorts answer on loopback unless told not to", "iptables: {localhostNodePorts: false}", func(c *Config) { c.NodePortLoopback = false }},
		{"or the ranges leave it out", "nodePortAddresses: [192.0.2.0/24, 2001:db8::/32]", func(c *Config) {
			c.NodePorts, c.NodePortLoopback = NodePorts{CIDRs: prefixes("192.0.2.0/24", "2001:db8::/32")}, false
		}},
		{"as primary does", "nodePortAddresses: [primary]", func(c *Config) { c.NodePorts, c.NodePortLoopback = NodePorts{Primary: true}, false }},
		{"but ranges may have it", "nodePortAddresses: [primary, localhost]", func(c *Config) {
			c.NodePorts = NodePorts{Primary: true, CIDRs: prefixes("127.0.0.0/8", "::1/128")}
		}},
		{"mode nftables is for the primary addresses", "mode: nftables", func(c *Config) { c.NodePorts, c.NodePortLoopback = NodePorts{Primary: true}, false }},
		{"and all does not name loopback there", "{mode: nftables, nodePortAddresses: [all]}", func(c *Config) {
			c.NodePorts, c.NodePortLoopback = NodePorts{CIDRs: prefixes("0.0.0.0/0", "::/0")}, false
		}},
		{"mode ipvs has a period of its own", "{mode: ipvs, ipvs: {syncPeriod: 5s}, iptables: {syncPeriod: 6s, masqueradeAll: true}}", func(c *Config) {
			c.SyncPeriod, c.NodePortLoopback, c.MasqueradeAll = 5*time.Second, false, true
		}},
		{"0 leaves conntrack as it is", "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}", func(c *Config) { c.Conntrack = Conntrack{} }},
		{"an interface is read where the mode asks for it", "{detectLocalMode: InterfaceNamePrefix, detectLocal: {interfaceNamePrefix: cali}}", func(c *Config) {
			c.Local = Local{Mode: LocalInterfaceNamePrefix, InterfacePrefix: "cali"}
		}},
		{"bits of a range beyond its mask do not count", "clusterCIDR: 10.244.1.2/16", func(c *Config) { c.Local.ClusterCIDRs = prefixes("10.244.0.0/16") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := header + tc.text
			if strings.HasPrefix(tc.text, "{") {
				text = "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, " + tc.text[1:]
			}
			want := defaults()
			tc.change(&want)
			got, _, err := Parse("file", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, want, got)
		})
	}
}

func wantSame(t *testing.T, want, got Config) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func wantWarnings(t *testing.T, got []lb.Problem, want ...string) {
	t.Helper()
	texts := []string{}
	for _, w := range got {
		texts = append(texts, w.Error())
	}
	if diff := cmp.Diff(append([]string{}, want...), texts); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
