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
		Common: Common{
			BindAddress:    netip.MustParseAddr("0.0.0.0"),
			HealthzAddress: "0.0.0.0:10256",
			MetricsAddress: "127.0.0.1:10249",
			Conntrack: Conntrack{
				MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour,
			},
			SyncPeriod: 30 * time.Second,
		},
		Client:           Client{QPS: 5, Burst: 10},
		NodePortLoopback: true,
	}
}

func TestOfWhatKubeadmWritesOnlyTheCIDRsOfPodsAreWarnedOf(t *testing.T) {
	got, warnings, err := Load("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Client.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	wantSame(t, want, got)
	wantWarnings(t, warnings, `testdata/kubeadm.yaml: clusterCIDR "10.244.0.0/16,fd00:10:244::/56": Headgate masquerades no client because of its address, so it need not tell local clients from others`)
}

func TestEveryFieldIsReadOrWarnedOf(t *testing.T) {
	got, warnings, err := Load("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	score := -500
	wantSame(t, Config{
		Common: Common{
			BindAddress:    netip.MustParseAddr("192.0.2.10"),
			HealthzAddress: "[2001:db8::1]:10356",
			MetricsAddress: "0.0.0.0:10249",
			BindHardFail:   true,
			Profiling:      true,
			NodePorts:      NodePorts{CIDRs: prefixes("192.0.2.0/24", "127.0.0.0/8")},
			OOMScoreAdj:    &score,
			Conntrack: Conntrack{
				MaxPerCore: 1, Min: 2, TCPEstablishedTimeout: 3 * time.Second, TCPCloseWaitTimeout: 4 * time.Second,
				TCPBeLiberal: true, UDPTimeout: 5 * time.Second, UDPStreamTimeout: 6 * time.Second,
			},
			SyncPeriod: 13 * time.Second,
		},
		Client:           Client{Kubeconfig: "/etc/kube-proxy.conf", QPS: 7.5, Burst: 20},
		NodeName:         "node-1.example.org",
		NodePortLoopback: true,
		LogLevel:         "info",
		LogFormat:        "json",
	}, got)
	var warned []string
	for _, w := range warnings {
		warned = append(warned, w.Field)
		if w.Reason == "" {
			t.Errorf("no reason is given for %s", w.Field)
		}
	}
	if diff := cmp.Diff([]string{
		"clientConnection.acceptContentTypes", "clientConnection.contentType", "clusterCIDR", "configSyncPeriod",
		"detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix", "detectLocalMode",
		"featureGates.KubeProxyNFTablesLocalhostNodePorts",
		"iptables.localhostNodePorts", "iptables.masqueradeAll", "iptables.masqueradeBit", "iptables.minSyncPeriod", "iptables.syncPeriod",
		"ipvs.excludeCIDRs", "ipvs.minSyncPeriod", "ipvs.scheduler", "ipvs.strictARP", "ipvs.syncPeriod", "ipvs.tcpFinTimeout", "ipvs.tcpTimeout", "ipvs.udpTimeout",
		"logging.flushFrequency", "logging.options.json.splitStream", "logging.options.text.infoBufferSize", "logging.options.text.splitStream", "logging.vmodule",
		"nftables.masqueradeAll", "nftables.masqueradeBit", "nftables.minSyncPeriod",
		"nodePortAddresses", "portRange", "showHiddenMetricsForVersion", "windowsRunAsService",
		"winkernel.enableDSR", "winkernel.forwardHealthCheckVip", "winkernel.networkName", "winkernel.rootHnsEndpointName", "winkernel.sourceVip",
	}, warned); diff != "" {
		t.Errorf("fields with a warning (-want +got):\n%s", diff)
	}
}

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestWhatAFieldMeans(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		change     func(*Config)
	}{
		{"nothing is the default", "", func(*Config) {}},
		{"an IPv6 bindAddress turns the default addresses to IPv6", "bindAddress: '::'", func(c *Config) {
			c.BindAddress, c.HealthzAddress, c.MetricsAddress = netip.IPv6Unspecified(), "[::]:10256", "[::1]:10249"
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
		{"mode ipvs has a period of its own, and a scheduler", "{mode: ipvs, ipvs: {syncPeriod: 5s}, iptables: {syncPeriod: 6s}}", func(c *Config) {
			c.SyncPeriod, c.NodePortLoopback, c.Algorithm = 5*time.Second, false, "rr"
		}},
		{"schedulers of IPVS are algorithms", "{mode: ipvs, ipvs: {scheduler: sed}}", func(c *Config) { c.NodePortLoopback, c.Algorithm = false, "sed" }},
		{"some under another name", "{mode: ipvs, ipvs: {scheduler: mh}}", func(c *Config) { c.NodePortLoopback, c.Algorithm = false, "maglev" }},
		{"of two the better one, too", "{mode: ipvs, ipvs: {scheduler: twos}}", func(c *Config) { c.NodePortLoopback, c.Algorithm = false, "p2c" }},
		{"others are not", "{mode: ipvs, ipvs: {scheduler: lblc}}", func(c *Config) { c.NodePortLoopback = false }},
		{"nor are algorithms that IPVS does not have", "{mode: ipvs, ipvs: {scheduler: latency}}", func(c *Config) { c.NodePortLoopback = false }},
		{"such as random", "{mode: ipvs, ipvs: {scheduler: random}}", func(c *Config) { c.NodePortLoopback = false }},
		{"or stable", "{mode: ipvs, ipvs: {scheduler: stable}}", func(c *Config) { c.NodePortLoopback = false }},
		{"or has under another name", "{mode: ipvs, ipvs: {scheduler: maglev}}", func(c *Config) { c.NodePortLoopback = false }},
		{"much in the log is debug", "logging: {verbosity: 4, format: text}", func(c *Config) { c.LogLevel, c.LogFormat = "debug", "console" }},
		{"a score of 0 is a score", "oomScoreAdj: 0", func(c *Config) { c.OOMScoreAdj = new(int) }},
		{"0 leaves conntrack as it is", "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}", func(c *Config) { c.Conntrack = Conntrack{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := header + tc.text
			if strings.HasPrefix(tc.text, "{") {
				text = "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, " + tc.text[1:]
			}
			want := defaults()
			tc.change(&want)
			got, _, err := Parse(Input{File: "file", Data: []byte(text)})
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
