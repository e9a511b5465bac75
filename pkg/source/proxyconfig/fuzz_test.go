package proxyconfig

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/lb"
)

// Whatever a file and flags say, they are taken over or refused: nothing crashes,
// a refusal and every warning are single lines that name the setting, and what is
// taken over is in bounds.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/every-field.yaml", "testdata/kubeadm.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "v", "4")
	}
	for _, text := range []string{
		header, "kind: [", header + "mode: ipvs\nipvs: {scheduler: mh}", header + "iptables: 5\nconntrack: [1]", header + "nodePortAddresses: [primary, 1.2.3.4/33]",
		header + "a: &a [*a]", header + "logging: {verbosity: 1e400}", header + "clientConnection: {qps: .inf, burst: -0}", header + "oomScoreAdj: 0x10",
	} {
		f.Add([]byte(text), "metrics-bind-address", "")
		f.Add([]byte(text), "conntrack-min", "1e3")
	}
	f.Fuzz(func(t *testing.T, text []byte, flag, said string) {
		var flags Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.AddTo(set)
		_ = set.Set(flag, said) // refused here is refused
		cfg, warnings, err := Parse(Input{File: "file", Data: text, Flags: &flags, Standalone: len(text)%2 == 0})
		if err != nil {
			checkLines(t, strings.Split(err.Error(), "\n"))
			return
		}
		var lines []string
		for _, w := range warnings {
			lines = append(lines, w.Error())
		}
		checkLines(t, lines)
		checkConfig(t, cfg)
	})
}

func checkLines(t *testing.T, lines []string) {
	for _, line := range lines {
		if strings.TrimSpace(line) == "" || strings.ContainsAny(line, "\n\r\x00\x1b") {
			t.Errorf("a problem is no line: %q", line)
		}
	}
}

func checkConfig(t *testing.T, c Config) {
	k := c.Conntrack
	switch {
	case c.OOMScoreAdj != nil && (*c.OOMScoreAdj < -1000 || *c.OOMScoreAdj > 1000),
		k.MaxPerCore < 0, k.Min < 0, k.TCPEstablishedTimeout < 0, k.TCPCloseWaitTimeout < 0, k.UDPTimeout < 0, k.UDPStreamTimeout < 0,
		c.SyncPeriod <= 0, c.Client.Burst <= 0, !c.BindAddress.IsValid(),
		c.Algorithm != "" && !slices.Contains(lb.Algorithms(), c.Algorithm),
		!slices.Contains([]string{"", "debug", "info"}, c.LogLevel), !slices.Contains([]string{"", "json", "console"}, c.LogFormat):
		t.Errorf("out of bounds: %+v", c)
	}
	for _, p := range c.NodePorts.CIDRs {
		if !p.IsValid() || p != p.Masked() {
			t.Errorf("%v is no prefix", p)
		}
	}
}
