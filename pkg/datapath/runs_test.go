package datapath_test

import (
	"net"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
)

// runsOf returns how often a program that is attached has run.
func runsOf(tb testing.TB, root, name string) datapath.ProgramRuns {
	tb.Helper()
	i, err := datapath.Inspect(root)
	if err != nil {
		tb.Fatal(err)
	}
	defer i.Close()
	all, err := i.ProgramRuns()
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	tb.Fatalf("%s is not among %+v", name, all)
	return datapath.ProgramRuns{}
}

func TestRunsOfProgramsAreCountedWhileSomebodyWantsIt(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	connect := func() {
		t.Helper()
		c, err := net.Dial("udp4", "127.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	counting, err := datapath.CountRuns()
	if err != nil {
		t.Fatal(err)
	}
	before := runsOf(t, cfg.Root, "connect4")
	connect()
	after := runsOf(t, cfg.Root, "connect4")
	if after.Runs < before.Runs+1 || after.Time <= before.Time || after.ID != before.ID {
		t.Errorf("%+v after a connect(), %+v before: nothing was counted", after, before)
	}
	if err := counting.Close(); err != nil {
		t.Fatal(err)
	}
	i, err := datapath.Inspect(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if bytes, err := i.MapBytes(); err != nil || bytes < 1<<20 {
		t.Errorf("the maps take %d bytes, %v", bytes, err)
	}
}
