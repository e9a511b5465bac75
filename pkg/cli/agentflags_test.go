package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// helpOf returns what a command prints.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	if code := Run(args, "VERSION", &out, &complaints); code != 0 {
		t.Fatalf("%q: %s", args, complaints.String())
	}
	return out.String()
}

func TestTheHelpOfTheAgentHasOneLineForEachFlag(t *testing.T) {
	proxy := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(proxyconfig.Flags).AddTo(proxy)
	for _, name := range []string{"agent", "check"} {
		short, ofProxy, all := helpOf(t, name, "--help"), helpOf(t, name, "--help=kube-proxy"), helpOf(t, name, "--help=all")
		if short != helpOf(t, name, "-h") || short != helpOf(t, "help", name) {
			t.Errorf("%s: -h and help differ from --help", name)
		}
		for line := range strings.Lines(short + ofProxy) {
			if len(line) > 101 {
				t.Errorf("%s: %d characters, at most 100: %s", name, len(line)-1, line)
			}
		}
		for _, tc := range []struct {
			flag string
			in   []bool // short, of kube-proxy, all
		}{{"flows", []bool{true, false, true}}, {"state-dir", []bool{true, true, true}}, {"ipvs-strict-arp", []bool{false, false, false}}} {
			for i, help := range []string{short, ofProxy, all} {
				if got := strings.Contains(help, "      --"+tc.flag+" "); got != tc.in[i] {
					t.Errorf("%s: help %d has --%s: %v", name, i, tc.flag, got)
				}
			}
		}
		proxy.VisitAll(func(f *pflag.Flag) {
			flag := "--" + f.Name + " "
			if !f.Hidden && (strings.Contains(short, "  "+flag) || !strings.Contains(ofProxy, flag) || !strings.Contains(all, flag)) {
				t.Errorf("%s: %s is not in the help of kube-proxy and in all alone", name, flag)
			}
		})
		if detail := "two to four per flow of packets"; strings.Contains(short, detail) || !strings.Contains(all, detail) {
			t.Errorf("%s: %q is not in --help=all alone", name, detail)
		}
	}
	var out, complaints bytes.Buffer
	want := "headgate: --help takes kube-proxy, all, or no value, not \"ipvs\""
	if code := Run([]string{"agent", "--help=ipvs"}, "VERSION", &out, &complaints); code == 0 || !strings.HasPrefix(complaints.String(), want) {
		t.Errorf("--help=ipvs: exit code %d, %q, want %q", code, complaints.String(), want)
	}
}
