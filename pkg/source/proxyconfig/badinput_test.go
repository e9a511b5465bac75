package proxyconfig

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatKubeProxyReadsLenientlyIsAWarning(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"an unknown field, whatever it says", header + "ipTables: false\n", `file: ipTables "false": kube-proxy has no such field`},
		{"an unknown field of a section", header + "conntrack: {max: 0}\n", `file: conntrack.max "0": kube-proxy has no such field`},
		{"a field written twice", header + "hostnameOverride: a\nhostnameOverride: a\n", `file: line 4: key "hostnameOverride" already set in map`},
		{"a second document", "# a comment\n---\n" + header + "--- # next\nkind: KubeletConfiguration\n", "file: more documents follow the first, which are ignored"},
		{"a scheduler that only IPVS has", header + "mode: ipvs\nipvs: {scheduler: lblc}\n", `file: ipvs.scheduler "lblc": is no scheduler that Headgate has; --algorithm counts`},
		{"a format that no log has", header + "logging: {format: xml}\n", `file: logging.format "xml": is no format of kube-proxy's log; write text or json`},
		{"ranges of one family", header + "nodePortAddresses: ['::/0']\n", "file: nodePortAddresses: has no IPv4 range, so NodePorts answer on every IPv4 address of the node"},
		{"a mode of long ago", header + "mode: userspace\n",
			`file: mode "userspace": is no mode of kube-proxy on Linux; that of iptables counts`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, warnings, err := Parse(Input{File: "file", Data: []byte(tc.text)})
			if err != nil {
				t.Fatal(err)
			}
			wantWarnings(t, warnings, tc.want)
		})
	}
}

func TestWhatKubeProxyRefusesIsAnErrorThatNamesIt(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no YAML", "kind: [", "file: no YAML: line 1: did not find expected node content"},
		{"nothing at all", "# nothing\n", "file: is no object; write apiVersion, kind and so on"},
		{"a list", "[]", "file: is no object; write apiVersion, kind and so on"},
		{"no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1", "file: kind: is missing; write KubeProxyConfiguration"},
		{"another kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: ConfigMap",
			`file: kind "ConfigMap": is not that of kube-proxy's configuration; write KubeProxyConfiguration`},
		{"another version", "apiVersion: kubeproxy.config.k8s.io/v1alpha9\nkind: KubeProxyConfiguration",
			`file: apiVersion "kubeproxy.config.k8s.io/v1alpha9": is not that of kube-proxy's configuration; write kubeproxy.config.k8s.io/v1alpha1`},
		{"a section that is none", header + "clientConnection: x", `file: clientConnection "x": is not a section with fields; write its fields below it, or leave it out`},
		{"a string that is none", header + "hostnameOverride: 5", `file: hostnameOverride "5": is not a string; write a string, or leave it out`},
		{"a node that can be none", header + "hostnameOverride: Node_A",
			`file: hostnameOverride "node_a": is not the name of a Node; write up to 253 lower-case letters, digits, '-' and '.', such as node-a`},
		{"a flag that is none", header + "enableProfiling: 'yes please'", `file: enableProfiling "yes please": is not true or false; write true or false, or leave it out`},
		{"a number that is none", header + "oomScoreAdj: high", `file: oomScoreAdj "high": is not a number; write a number, or leave it out`},
		{"a fraction", header + "conntrack: {min: 1.5}", `file: conntrack.min "1.5": is out of range; write a whole number from 0 to 2147483647`},
		{"a score out of range", header + "oomScoreAdj: -1001", `file: oomScoreAdj "-1001": is out of range; write a whole number from -1000 to 1000`},
		{"a duration without a unit", header + "iptables: {syncPeriod: '30'}", `file: iptables.syncPeriod "30": is not a duration of at least 0; write one such as 30s or 1h30m`},
		{"a negative duration", header + "iptables: {syncPeriod: -1s}", `file: iptables.syncPeriod "-1s": is not a duration of at least 0; write one such as 30s or 1h30m`},
		{"a name for an address", header + "bindAddress: localhost", `file: bindAddress "localhost": is not an IP address; write one, such as 0.0.0.0`},
		{"a name to listen on", header + "metricsBindAddress: localhost:10249", `file: metricsBindAddress "localhost:10249": is not an IP address and a port; write them as 127.0.0.1:10249, or --metrics-port 0 for nowhere`},
		{"a port out of range", header + "healthzBindAddress: 0.0.0.0:65536", `file: healthzBindAddress "0.0.0.0:65536": has a port that is not from 1 to 65535; write one, such as 0.0.0.0:10256, or --healthz-port 0 for nowhere`},
		{"an address for a range", header + "nodePortAddresses: [10.244.0.0]", `file: nodePortAddresses "10.244.0.0": is not a prefix; write one, such as 192.0.2.0/24, or primary, localhost or all`},
		{"an unknown word for addresses", header + "nodePortAddresses: [secondary]", `file: nodePortAddresses "secondary": is not a prefix; write one, such as 192.0.2.0/24, or primary, localhost or all`},
		{"several at once", header + "oomScoreAdj: x\nbindAddress: z",
			"file: bindAddress \"z\": is not an IP address; write one, such as 0.0.0.0\nfile: oomScoreAdj \"x\": is not a number; write a number, or leave it out"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Parse(Input{File: "file", Data: []byte(tc.text)})
			if err == nil {
				t.Fatal("taken")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFileThatIsNotThereIsAnError(t *testing.T) {
	if _, _, err := Load("testdata/none.yaml"); err == nil {
		t.Error("read nothing without an error")
	}
}

func TestOnWhichAddressesNodePortsAnswer(t *testing.T) {
	primary := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, tc := range []struct {
		name    string
		n       NodePorts
		primary []netip.Addr
		addr    string
		want    bool
	}{
		{"without a list on all", NodePorts{}, primary, "198.51.100.1", true},
		{"on a primary address", NodePorts{Primary: true}, primary, "192.0.2.1", true},
		{"not on another beside it", NodePorts{Primary: true}, primary, "192.0.2.2", false},
		{"nor on one of the other family", NodePorts{Primary: true}, primary, "2001:db8::2", false},
		{"on all of a family without a primary address", NodePorts{Primary: true}, primary[:1], "2001:db8::2", true},
		{"on an address in a range", NodePorts{CIDRs: prefixes("198.51.100.0/24")}, primary, "198.51.100.9", true},
		{"not on one outside", NodePorts{CIDRs: prefixes("198.51.100.0/24")}, primary, "192.0.2.1", false},
		{"on all of a family without a range", NodePorts{CIDRs: prefixes("198.51.100.0/24")}, primary, "2001:db8::2", true},
		{"on what either allows", NodePorts{Primary: true, CIDRs: prefixes("198.51.100.0/24")}, primary, "192.0.2.1", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.n.Allow(netip.MustParseAddr(tc.addr), tc.primary); got != tc.want {
				t.Errorf("Allow(%s) = %v", tc.addr, got)
			}
		})
	}
}
