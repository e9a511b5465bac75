package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// proxyFlags are the flags of kube-proxy 1.36, each with a value that is not its
// default, and what that changes of what the agent does; "" is a warning.
var proxyFlags = map[string]struct{ value, changes string }{
	"config": {"", "everything"}, "cleanup": {"true", "everything"}, "init-only": {"true", "InitOnly=true"}, "write-config-to": {"/tmp/x", ""},
	"kubeconfig": {"other.conf", "Kube.Kubeconfig=other.conf"}, "master": {"https://192.0.2.1:6443", "Kube.Servers=[https://192.0.2.1:6443]"},
	"kube-api-content-type": {"application/json", ""}, "kube-api-qps": {"7", "Kube.QPS=7"}, "kube-api-burst": {"70", "Kube.Burst=70"},
	"hostname-override": {"Node-B", "NodeName=node-b"}, "bind-address": {"192.0.2.9", "BindAddress=192.0.2.9"}, "bind-address-hard-fail": {"true", "BindHardFail=true"},
	"healthz-bind-address": {"127.0.0.1:20256", "HealthzAddress=127.0.0.1:20256"}, "healthz-port": {"20256", "HealthzAddress=0.0.0.0:20256"},
	"metrics-bind-address": {"", "MetricsAddress="}, "metrics-port": {"0", "MetricsAddress="},
	"profiling": {"true", "Profiling=true"}, "show-hidden-metrics-for-version": {"1.35", ""}, "feature-gates": {"A=true", ""},
	"v": {"4", "logLevel=debug"}, "vmodule": {"a=4", ""}, "logging-format": {"json", "logFormat=json"}, "log-flush-frequency": {"7s", ""},
	"proxy-mode":     {"nftables", "NodePortLoopback=false NodePorts.Primary=true"},
	"masquerade-all": {"true", ""}, "iptables-masquerade-bit": {"7", ""}, "iptables-localhost-nodeports": {"false", "NodePortLoopback=false"},
	"iptables-sync-period": {"7s", "SyncPeriod=7s"}, "iptables-min-sync-period": {"7s", ""},
	"ipvs-sync-period": {"7s", ""}, "ipvs-min-sync-period": {"7s", ""}, "ipvs-scheduler": {"wlc", ""}, "ipvs-exclude-cidrs": {"10.0.0.0/8", ""},
	"ipvs-strict-arp": {"true", ""}, "ipvs-tcp-timeout": {"7s", ""}, "ipvs-tcpfin-timeout": {"7s", ""}, "ipvs-udp-timeout": {"7s", ""},
	"detect-local-mode": {"NodeCIDR", ""}, "pod-bridge-interface": {"cni0", ""}, "pod-interface-name-prefix": {"veth", ""}, "cluster-cidr": {"10.244.0.0/16", ""},
	"nodeport-addresses": {"primary,127.0.0.0/8", "NodePorts.CIDRs=[127.0.0.0/8] NodePorts.Primary=true"}, "oom-score-adj": {"-998", "OOMScoreAdj=-998"},
	"conntrack-max-per-core": {"7", "Conntrack.MaxPerCore=7"}, "conntrack-min": {"7", "Conntrack.Min=7"},
	"conntrack-tcp-timeout-established": {"7s", "Conntrack.TCPEstablishedTimeout=7s"}, "conntrack-tcp-timeout-close-wait": {"7s", "Conntrack.TCPCloseWaitTimeout=7s"},
	"conntrack-tcp-be-liberal": {"true", "Conntrack.TCPBeLiberal=true"},
	"conntrack-udp-timeout":    {"7s", "Conntrack.UDPTimeout=7s"}, "conntrack-udp-timeout-stream": {"7s", "Conntrack.UDPStreamTimeout=7s"},
	"config-sync-period": {"7m", ""},
}

// proxyFields are the fields of KubeProxyConfiguration v1alpha1, likewise.
const proxyFields = `featureGates.A=true
clientConnection.kubeconfig=other.conf
clientConnection.acceptContentTypes=application/json
clientConnection.contentType=application/json
clientConnection.qps=7
clientConnection.burst=70
logging.format=json
logging.flushFrequency=7s
logging.verbosity=4
logging.vmodule=[{filePattern: a, verbosity: 4}]
logging.options.text.splitStream=true
logging.options.text.infoBufferSize=1Ki
logging.options.json.splitStream=true
logging.options.json.infoBufferSize=1Ki
hostnameOverride=node-b
bindAddress=192.0.2.9
healthzBindAddress=127.0.0.1:20256
metricsBindAddress=127.0.0.1:20249
bindAddressHardFail=true
enableProfiling=true
showHiddenMetricsForVersion="1.35"
mode=nftables
iptables.masqueradeBit=7
iptables.masqueradeAll=true
iptables.localhostNodePorts=false
iptables.syncPeriod=7s
iptables.minSyncPeriod=7s
ipvs.syncPeriod=7s
ipvs.minSyncPeriod=7s
ipvs.scheduler=wlc
ipvs.excludeCIDRs=[10.0.0.0/8]
ipvs.strictARP=true
ipvs.tcpTimeout=7s
ipvs.tcpFinTimeout=7s
ipvs.udpTimeout=7s
nftables.masqueradeBit=7
nftables.masqueradeAll=true
nftables.syncPeriod=7s
nftables.minSyncPeriod=7s
winkernel.networkName=a
winkernel.sourceVip=192.0.2.9
winkernel.enableDSR=true
winkernel.rootHnsEndpointName=a
winkernel.forwardHealthCheckVip=true
detectLocalMode=BridgeInterface
detectLocal.bridgeInterface=cni0
detectLocal.interfaceNamePrefix=veth
clusterCIDR=10.244.0.0/16
nodePortAddresses=[primary]
oomScoreAdj=-998
conntrack.maxPerCore=7
conntrack.min=7
conntrack.tcpEstablishedTimeout=7s
conntrack.tcpCloseWaitTimeout=7s
conntrack.tcpBeLiberal=true
conntrack.udpTimeout=7s
conntrack.udpStreamTimeout=7s
configSyncPeriod=7m
portRange=1-2
windowsRunAsService=true`

// told returns what an agent with a command line is told.
func told(tb testing.TB, args ...string) *agentOptions {
	tb.Helper()
	tb.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.7") // a source
	o := &agentOptions{}
	cmd := &cobra.Command{}
	o.addFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	if err := o.resolve(cmd.Flags()); err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	return o
}

// effect is what an agent does by what it is told, by field.
func (o *agentOptions) effect() map[string]string {
	out := map[string]string{}
	flatten(out, "logLevel", reflect.ValueOf(o.logLevel))
	flatten(out, "logFormat", reflect.ValueOf(o.logFormat))
	flatten(out, "", reflect.ValueOf(o.Config))
	return out
}

// flatten notes a value, and of a struct each field, under its name.
func flatten(out map[string]string, name string, v reflect.Value) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if _, prints := v.Interface().(fmt.Stringer); v.Kind() != reflect.Struct || prints {
		out[strings.TrimPrefix(name, ".")] = fmt.Sprint(v)
		return
	}
	for i := range v.NumField() {
		field, within := v.Type().Field(i), name
		if !field.Anonymous {
			within += "." + field.Name
		}
		flatten(out, within, v.Field(i))
	}
}

// changes is what an agent does otherwise than one that is told something else.
func (o *agentOptions) changes(than *agentOptions) string {
	var out []string
	before, after := than.effect(), o.effect()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			out = append(out, name+"="+after[name])
		}
	}
	return strings.Join(out, " ")
}

// wantChanges fails unless a setting changes just that; if that is nothing, unless it
// is warned of, with the reason.
func wantChanges(t *testing.T, name, want string, without, with *agentOptions) {
	t.Helper()
	if got := with.changes(without); got != want {
		t.Errorf("%s changes %q, want %q", name, got, want)
	}
	warned := slices.IndexFunc(with.withoutEffect, func(w string) bool { return strings.Contains(w, name) })
	unexplained := func(w string) bool { return strings.HasSuffix(w, ": ") || strings.HasSuffix(w, "no such field") }
	if (warned >= 0) != (want == "") || slices.ContainsFunc(with.withoutEffect, unexplained) {
		t.Errorf("%s changes %q; the warnings are %q", name, want, with.withoutEffect)
	}
}

func TestEveryFlagOfKubeProxyHasAnEffectOrAWarning(t *testing.T) {
	if len(proxyFlags) != 51 {
		t.Fatalf("%d flags, kube-proxy 1.36 has 51", len(proxyFlags))
	}
	documented := map[string]proxyconfig.Setting{}
	for _, s := range proxyconfig.Settings() {
		documented[s.Flag] = s
	}
	for name, flag := range proxyFlags {
		s, ok := documented[name]
		if !ok {
			t.Errorf("no setting has the flag --%s", name)
		}
		switch name {
		case "config":
		case "cleanup": // nothing else is read
			if !told(t, "--cleanup").cleanup {
				t.Error("--cleanup changes nothing")
			}
		default:
			wantChanges(t, "--"+name, flag.changes, told(t), told(t, "--"+name+"="+flag.value))
		}
		if s.Does == "" && flag.changes != "" || s.Why == "" && flag.changes == "" {
			t.Errorf("--%s changes %q; it is said to do %q, and to have no effect since %q", name, flag.changes, s.Does, s.Why)
		}
	}
}

func TestASettingOfAModeHasItsEffectInThatModeAlone(t *testing.T) {
	fields := func(text string) []string { return []string{config(t, text)} }
	flags := func(args ...string) []string { return args }
	for name, c := range map[string]struct {
		without, with []string
		changes       string
	}{
		"--ipvs-scheduler":            {flags("--proxy-mode=ipvs"), flags("--proxy-mode=ipvs", "--ipvs-scheduler=wlc"), "Algorithm=wlc"},
		"--ipvs-sync-period":          {flags("--proxy-mode=ipvs"), flags("--proxy-mode=ipvs", "--ipvs-sync-period=7s"), "SyncPeriod=7s"},
		"nftables.syncPeriod":         {fields("mode: nftables"), fields("mode: nftables\nnftables: {syncPeriod: 7s}"), "SyncPeriod=7s"},
		"--iptables-sync-period":      {flags("--proxy-mode=nftables"), flags("--proxy-mode=nftables", "--iptables-sync-period=7s"), ""},
		"iptables.localhostNodePorts": {fields("mode: nftables"), fields("mode: nftables\niptables: {localhostNodePorts: true}"), ""},
		"ipvs.scheduler":              {fields("mode: nftables"), fields("mode: nftables\nipvs: {scheduler: wlc}"), ""},
		"ipvs.syncPeriod":             {fields("mode: nftables"), fields("mode: nftables\nipvs: {syncPeriod: 7s}"), ""},
		"the scheduler of mode ipvs":  {nil, flags("--proxy-mode=ipvs"), "Algorithm=rr NodePortLoopback=false"},
	} {
		wantChanges(t, name, c.changes, told(t, c.without...), told(t, c.with...))
	}
}

// config writes a KubeProxyConfiguration.
func config(tb testing.TB, text string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kube-proxy.yaml")
	text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + text + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return "--config=" + file
}

// What a field changes is what its flag does, as the next test says.
func TestEveryFieldOfKubeProxysFileHasAnEffectOrAWarning(t *testing.T) {
	none, flags := config(t, ""), map[string]string{}
	for _, s := range proxyconfig.Settings() {
		flags[s.Field] = s.Flag
		if s.Field != "" && s.Field != "logging" && s.Field != "featureGates" && !strings.Contains(proxyFields, s.Field+"=") {
			t.Errorf("the field %s of the settings is none of KubeProxyConfiguration", s.Field)
		}
	}
	for _, field := range strings.Split(proxyFields, "\n") {
		path, value, _ := strings.Cut(field, "=")
		without, with, want := told(t, none), told(t, config(t, inFile(path, value))), ""
		if proxyFlags[flags[path]].changes != "" {
			want = with.changes(without)
		}
		wantChanges(t, path, want, without, with)
	}
}

// inFile is a field with a value, in the sections that it is in.
func inFile(path, value string) string {
	names := strings.Split(path, ".")
	return strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1)
}

// A flag sets what the field sets.
func TestAFlagMeansWhatItsFieldMeans(t *testing.T) {
	values := map[string]string{}
	for _, field := range strings.Split(proxyFields, "\n") {
		path, value, _ := strings.Cut(field, "=")
		values[path] = value
	}
	for _, s := range proxyconfig.Settings() {
		value := values[s.Field]
		if s.Flag == "" || s.Field == "" {
			continue
		}
		file, flag := config(t, inFile(s.Field, value)), "--"+s.Flag+"="+strings.Trim(value, "[]")
		byField, byFlag := told(t, file), told(t, flag)
		if differ := byField.changes(byFlag); differ != "" {
			t.Errorf("%s and --%s differ by %s", s.Field, s.Flag, differ)
		}
		both := told(t, file, flag)
		if differ := both.changes(byFlag); differ != "" || !slices.Equal(both.withoutEffect, byFlag.withoutEffect) {
			t.Errorf("%s and --%s together differ from the flag by %q, and warn %q", s.Field, s.Flag, differ, both.withoutEffect)
		}
	}
}

func TestTheCommandLineHasPrecedenceOverKubeProxysFile(t *testing.T) {
	file := config(t, "hostnameOverride: of-file\nmetricsBindAddress: 127.0.0.1:1\nmode: ipvs\nnodePortAddresses: [primary]")
	flags := []string{"--hostname-override=of-flag", "--metrics-bind-address=", "--proxy-mode=iptables", "--nodeport-addresses=192.0.2.0/24, 127.0.0.0/8", "--nodeport-addresses=2001:db8::/32"}
	if differ := told(t, append(flags, file)...).changes(told(t, flags...)); differ != "" {
		t.Errorf("beside flags the file changes %s", differ)
	}
	if got := fmt.Sprint(told(t, flags...).NodePorts.CIDRs); got != "[192.0.2.0/24 127.0.0.0/8 2001:db8::/32]" {
		t.Errorf("a flag with two values that comes again says %s", got)
	}
}

// Headgate's own flags have precedence over kube-proxy's words for the same thing, also
// where they say the default.
func TestHeadgatesOwnFlagsHavePrecedence(t *testing.T) {
	t.Setenv("NODE_NAME", "of-environment")
	for field, c := range map[string]struct{ byDefault, own, want string }{
		"NodeName":         {"of-environment", "--node-name=own", "own"},
		"Kube.Servers":     {"[]", "--api-servers=https://192.0.2.1", "[https://192.0.2.1]"},
		"Algorithm":        {"random", "--algorithm=random", "random"},
		"NodePortLoopback": {"true", "--nodeport-loopback", "true"},
		"logLevel":         {"info", "--log-level=info", "info"},
		"logFormat":        {"console", "--log-format=console", "console"},
	} {
		if got := told(t).effect()[field]; got != c.byDefault {
			t.Errorf("%s is %q where nothing is said, want %q", field, got, c.byDefault)
		}
		got := told(t, c.own, "--hostname-override=other", "--master=https://192.0.2.2", "--proxy-mode=ipvs", "--ipvs-scheduler=lc", "-v9", "--logging-format=json").effect()
		if got[field] != c.want {
			t.Errorf("with %s and what kube-proxy calls it %s is %q, want %q", c.own, field, got[field], c.want)
		}
	}
}

func TestFlagsAreWrittenAsKubeProxyHasThem(t *testing.T) {
	for _, args := range [][]string{{"-v=4"}, {"-v", "4"}, {"--profiling"}, {"--profiling=true"}, {"--ipvs-strict-arp"}, {"--conntrack-udp-timeout", "1h30m"}} {
		told(t, args...)
	}
	for _, bad := range []string{"--v=much", "--profiling=perhaps", "--conntrack-udp-timeout=7", "--ipvs-tcp-timeout=soon", "--iptables-masquerade-bit=x"} {
		cmd := &cobra.Command{}
		(&agentOptions{}).addFlags(cmd)
		if err := cmd.ParseFlags([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	cmd := &cobra.Command{}
	(&agentOptions{}).addFlags(cmd)
	for _, s := range proxyconfig.Settings() {
		if flag := cmd.Flags().Lookup(s.Flag); flag != nil && flag.Hidden != (s.Does == "") {
			t.Errorf("the help hides --%s: %v", s.Flag, flag.Hidden)
		}
	}
}

func TestWithoutAClusterNothingListensUnlessToldTo(t *testing.T) {
	for _, tc := range []struct {
		name             string
		args             []string
		healthz, metrics string
		conntrack        bool // the kernel's is configured
	}{
		{"a cluster", nil, "0.0.0.0:10256", "127.0.0.1:10249", true},
		{"a folder", []string{"--manifests=m"}, "", "", false},
		{"a folder and kube-proxy's file", []string{"--manifests=m", config(t, "")}, "0.0.0.0:10256", "127.0.0.1:10249", true},
		{"a folder with ports", []string{"--manifests=m", "--healthz-port=1", "--metrics-bind-address=127.0.0.1"}, "0.0.0.0:1", "127.0.0.1:10249", false},
		{"a cluster with empty addresses", []string{"--healthz-bind-address=", "--metrics-bind-address="}, "", "", true},
		{"a cluster with ports", []string{"--healthz-port=1", "--metrics-port=0"}, "0.0.0.0:1", "", true},
		{"a cluster of IPv6", []string{"--bind-address=::"}, "[::]:10256", "[::1]:10249", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := told(t, tc.args...)
			if o.HealthzAddress != tc.healthz || o.MetricsAddress != tc.metrics {
				t.Errorf("healthz at %q, metrics at %q, want %q and %q", o.HealthzAddress, o.MetricsAddress, tc.healthz, tc.metrics)
			}
			if k := o.Conntrack; (k.MaxPerCore != 0 && k.TCPEstablishedTimeout != 0 && k.TCPCloseWaitTimeout != 0) != tc.conntrack {
				t.Errorf("the kernel's connection tracking is set to %+v", k)
			}
		})
	}
}

func TestANodeWithoutANameHasThatOfItsHost(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	if got := told(t, config(t, `hostnameOverride: ""`)).NodeName; got != strings.ToLower(host) {
		t.Errorf("the node is %q, the host %q", got, host)
	}
	t.Setenv("NODE_NAME", "of-environment")
	if got := told(t).NodeName; got != "of-environment" {
		t.Errorf("the node is %q, the environment says another", got)
	}
	if got := told(t, "--hostname-override=Of-Flag").NodeName; got != "of-flag" {
		t.Errorf("the node is %q, the flag says another", got)
	}
}
