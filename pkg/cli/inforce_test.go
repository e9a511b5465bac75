package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// flagsOf returns the flags of a command line, with what they set.
func flagsOf(t *testing.T, args ...string) (*agentOptions, *pflag.FlagSet) {
	t.Helper()
	o := &agentOptions{}
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	for _, add := range []func(*pflag.FlagSet){o.addSource, o.addTraffic, o.addBalancing, o.addPolicy, o.addLimits, o.addOperation, o.proxyFlags.AddTo} {
		add(flags)
	}
	if err := flags.Parse(append([]string{"--node-name=node-a"}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := o.resolve(flags); err != nil {
		t.Fatal(err)
	}
	return o, flags
}

// What is in force is shown as it is set: by the names of flags, as a file may have them.
func TestWhatIsInForceIsShownByTheNamesOfFlags(t *testing.T) {
	o, flags := flagsOf(t, "--manifests=m", "--ipvs-sync-period=9s", "--conntrack-udp-timeout=10s", "--devices=eth0,eth1", "--redirect",
		"--eject-after=5", "--healthz-port=1", "--nodeport-addresses=primary,192.0.2.0/24", "--hostname-override=x", "--log-level=debug", "--proxy-mode=ipvs")
	body, err := json.Marshal(o.settings(flags))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"manifests":"m"`, `"iptables-sync-period":"9s"`, `"conntrack-udp-timeout":"10s"`, `"devices":["eth0","eth1"]`, `"redirect":true`,
		`"eject-after":5`, `"healthz-bind-address":"0.0.0.0:1"`, `"nodeport-addresses":["primary","192.0.2.0/24"]`, `"node-name":"node-a"`,
		`"log-level":"debug"`, `"algorithm":"rr"`, `"service-cidrs":[]`, `"kube-api-burst":10`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
}

// Every flag with an effect is shown, or leads to another that is.
func TestEveryFlagIsShownOrLeadsToAnother(t *testing.T) {
	leads := []string{"master", "hostname-override", "healthz-port", "metrics-port", "v", "logging-format", "proxy-mode",
		"iptables-localhost-nodeports", "ipvs-scheduler", "ipvs-sync-period", "oom-score-adj"}
	none := map[string]bool{}
	for _, s := range proxyconfig.Settings() {
		none[s.Flag] = s.Does == ""
	}
	o, flags := flagsOf(t, "--manifests=m")
	shown := o.settings(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if _, ok := shown[f.Name]; !ok && !none[f.Name] && !slices.Contains(leads, f.Name) && !slices.Contains(notSettings, f.Name) {
			t.Errorf("--%s is not shown", f.Name)
		}
	})
	for name := range shown {
		if flags.Lookup(name) == nil {
			t.Errorf("%q is shown and is no flag", name)
		}
	}
}

func TestFlagsThatMeanNothingBesideOthersAreNamed(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--manifests=m"}, ""},
		{[]string{"--api-servers=https://192.0.2.1"}, ""},
		{[]string{"--kubeconfig=k", "--tls-server-name=x", "--kube-api-qps=5"}, ""},
		{[]string{"--manifests=m", "--api-servers=https://192.0.2.1"}, "--api-servers"},
		{[]string{"--manifests=m", "--kubeconfig=k", "--kube-api-burst=7"}, "--kubeconfig --kube-api-burst"},
		{[]string{"--master=https://192.0.2.2", "--api-servers=https://192.0.2.1"}, "--master"},
		{[]string{"--manifests=m", "--pod-runtime-classes=kata"}, "--pod-runtime-classes"},
		{[]string{"--manifests=m", "--pod-runtime-classes=kata", "--pod-devices=marked"}, ""},
		{[]string{"--manifests=m", "--eject-after=0", "--max-ejected-percent=10", "--probes=allow"}, "--max-ejected-percent --probes"},
		{[]string{"--manifests=m", "--eject-after=0", "--probes=deny"}, ""},
	} {
		o, flags := flagsOf(t, c.args...)
		var got []string
		for _, line := range o.withoutMeaning(flags.Changed) {
			flag, why, _ := strings.Cut(line, " has no effect: ")
			if why == "" {
				t.Errorf("%v: %q gives no reason", c.args, line)
			}
			got = append(got, flag)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: without effect are %q, want %q", c.args, got, c.want)
		}
	}
}
