// Package capabilities_test runs the real agent with few of root's
// capabilities: those that deploy/ asks for are enough, and none of them is too
// many.
package capabilities_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) {
	if stage := stages[os.Getenv(stageVar)]; stage != nil {
		os.Exit(stage())
	}
	os.Exit(testenv.Main(m))
}

func TestWhatTheAgentDoesWithFewCapabilities(t *testing.T) {
	for _, tc := range []struct {
		name string
		caps []string
		want does
	}{
		{"SYS_ADMIN and SYS_PTRACE do for everything", []string{"SYS_ADMIN", "SYS_PTRACE"}, does{Balance: true, Adopt: true, Restore: true, Tell: true}},
		{"without SYS_PTRACE clients in pods are not found", []string{"SYS_ADMIN"}, does{Balance: true, Adopt: true, Restore: true, Warn: true}},
		{"without SYS_ADMIN it does not start", []string{"SYS_PTRACE"}, does{}},
		{"finer ones are no substitute", []string{"BPF", "NET_ADMIN", "PERFMON", "SYS_PTRACE"}, does{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, observe(t, tc.caps)); diff != "" {
				t.Errorf("with %s (-want +got):\n%s", strings.Join(tc.caps, ", "), diff)
			}
		})
	}
}

func TestAnAgentWithFewCapabilitiesTakesOverFromInitOnly(t *testing.T) {
	if !takesOver(t, []string{"SYS_ADMIN", "SYS_PTRACE"}) {
		t.Error("it did not go on with the programs that were there")
	}
}

// Before Linux 6.6 filters attach programs to devices, which NET_ADMIN alone may add.
func TestFiltersTakeNetAdmin(t *testing.T) {
	for _, tc := range []struct {
		caps []string
		want bool
	}{{[]string{"SYS_ADMIN", "SYS_PTRACE"}, false}, {[]string{"SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN"}, true}} {
		t.Run(strings.Join(tc.caps, ","), func(t *testing.T) {
			if got := filters(t, tc.caps); got != tc.want {
				t.Errorf("filters are attached: %v, want %v", got, tc.want)
			}
		})
	}
}

// The set that is enough on every kernel, while no part of it is, is what deploy/ asks for.
func TestTheManifestAsksForTheseCapabilities(t *testing.T) {
	data, err := os.ReadFile("../../deploy/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "add: [SYS_ADMIN, SYS_PTRACE, NET_ADMIN]\n") {
		t.Errorf("another set than was tried:\n%s", data)
	}
}
