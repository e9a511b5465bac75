package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/plan"
)

func TestAConfigThatMakesNoSenseIsSaid(t *testing.T) {
	good := Config{Manifests: "dir", NodeName: "node-a", Promises: 1024}
	for _, tc := range []struct {
		name  string
		spoil func(*Config)
		want  string
	}{
		{"nothing wrong", func(*Config) {}, ""},
		{"no source", func(c *Config) { c.Manifests = "" }, "no source of Services: name a directory of YAML with --manifests"},
		{"no node", func(c *Config) { c.NodeName = "" }, "no node name: say which Node this is with --node-name"},
		{"no promises", func(c *Config) { c.Promises = 0 }, "--promises 0: not a power of two"},
		{"odd promises", func(c *Config) { c.Promises = 1000 }, "--promises 1000: not a power of two"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, got := good, ""
			tc.spoil(&cfg)
			if err := cfg.Validate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNodePortsAnswerOnLoopbackWhereThatIsWanted(t *testing.T) {
	node := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("2001:db8::1"): true}
	want := map[string]plan.AddressKind{"192.0.2.1": plan.NodeAddress, "2001:db8::1": plan.NodeAddress}
	if diff := cmp.Diff(want, byName(addressKinds(node, false))); diff != "" {
		t.Errorf("without loopback (-want +got):\n%s", diff)
	}
	want["127.0.0.1"], want["::1"] = plan.LoopbackAddress, plan.LoopbackAddress
	if diff := cmp.Diff(want, byName(addressKinds(node, true))); diff != "" {
		t.Errorf("with loopback (-want +got):\n%s", diff)
	}
}

func byName(kinds map[netip.Addr]plan.AddressKind) map[string]plan.AddressKind {
	out := map[string]plan.AddressKind{}
	for a, kind := range kinds {
		out[a.String()] = kind
	}
	return out
}
