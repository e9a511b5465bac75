package cli

import (
	"os"
	"path/filepath"
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
