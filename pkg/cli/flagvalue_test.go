package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
)

func TestAFlagTakesWhatIsWithinItsBoundsAndSaysThemOtherwise(t *testing.T) {
	for _, tc := range []struct{ arg, want string }{
		{"--eject-after=0", ""},
		{"--eject-after=255", ""},
		{"--eject-after=256", `--eject-after takes a whole number from 0 to 255, not "256"`},
		{"--eject-after=-1", `--eject-after takes a whole number from 0 to 255, not "-1"`},
		{"--eject-after=few", `--eject-after takes a whole number from 0 to 255, not "few"`},
		{"--affinities=0", `--affinities takes a whole number from 1 to 4294967295, not "0"`},
		{"--max-slots=4294967295", ""},
		{"--max-slots=4294967296", `--max-slots takes a whole number from 0 to 4294967295, not "4294967296"`},
		{"--flows=0", ""},
		{"--flows=1024", ""},
		{"--flows=1023", `--flows takes a whole number from 1024 to 4294967295, or 0 for one per 64 KiB of memory, not "1023"`},
		{"--socket-entries=1", ""},
		{"--socket-entries=2147483648", ""},
		{"--socket-entries=0", `--socket-entries takes a power of two such as 65536, not "0"`},
		{"--socket-entries=1000", `--socket-entries takes a power of two such as 65536, not "1000"`},
		{"--pod-devices=all", ""},
		{"--pod-devices=some", `--pod-devices takes one of none, marked, all, not "some"`},
		{"--pod-devices=", `--pod-devices takes one of none, marked, all, not ""`},
	} {
		o, cmd, got := &agentOptions{}, &cobra.Command{}, ""
		o.addFlags(cmd)
		if err := cmd.ParseFlags([]string{tc.arg}); err != nil {
			got = command.ExplainFlag(err).Error()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.arg, got, tc.want)
		}
	}
}

// What somebody has pasted into a command line is not repeated at length.
func TestLongValuesAreCut(t *testing.T) {
	long := strings.Repeat("long", 200)
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(long+": 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := []string{"agent", "--manifests", "m"}
	for _, args := range [][]string{
		{long}, {"frontend", long}, {"--" + long}, {"---" + long}, {"-x" + long}, {"status", long}, {"agent", long}, {"agent", "--config", file},
		append(agent, "--socket-entries", long), append(agent, "--algorithm", long), append(agent, "--redirect="+long), append(agent, "--log-level", long),
		append(agent, "--log-format", long), append(agent, "--external-ips", long), append(agent, "--service-cidrs", long), append(agent, "--kube-api-qps", long),
		append(agent, "--nodeport-addresses", long), append(agent, "--node-name", "a/"+long), append(agent, "--hostname-override", "a/"+long),
		append(agent, "--devices", long),
	} {
		var stderr strings.Builder
		code := Run(args, "v1", io.Discard, &stderr)
		if said := stderr.String(); code == 0 || len(said) > 600 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "long") {
			t.Errorf("%.40q: ended with %d and %d bytes: %.200q", args, code, len(said), said)
		}
	}
}
