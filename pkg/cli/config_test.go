package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCommandLineHasPrecedenceOverAFileOfFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("node-name: of-file\nflows: 4096\ndevices: [eth0, eth1]\nmetrics-port: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := told(t, "--config="+file, "--node-name=of-flag")
	if got, want := o.changes(told(t, "--node-name=of-flag")), "Datapath.Flows=4096 Devices=[eth0 eth1] MetricsAddress="; got != want {
		t.Errorf("beside a flag the file changes %q, want %q", got, want)
	}
}

// A check resolves flags as an agent does.
func TestCarryingNeedsAKeyThatAllNodesHave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("forwarding: dsr\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"agent", "check"} {
		for _, flag := range []string{"--forwarding=dsr", "--forwarding=marked", "--config=" + file} {
			var said strings.Builder
			if code := Run([]string{command, "--manifests", t.TempDir(), flag}, "test", io.Discard, &said); code == 0 || !strings.Contains(said.String(), "with --hash-key-file") {
				t.Errorf("headgate %s %s: exit code %d\n%s", command, flag, code, said.String())
			}
		}
	}
	if o := told(t, "--forwarding=marked", "--hash-key-file=key"); !o.Convert.DSR {
		t.Error("with a key nothing is carried")
	}
}
