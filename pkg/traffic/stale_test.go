package traffic

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/cgroup"
)

func TestALeftoverIsStaleOnlyIfItsProcessIsGone(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, leftover string
		want           bool
	}{
		{"of a process that is gone", fmt.Sprintf("x-%d-node", gone.Process.Pid), true},
		{"of a process that is gone, without more behind", fmt.Sprintf("x-%d", gone.Process.Pid), true},
		{"of a process that lives", fmt.Sprintf("x-%d-node", os.Getppid()), false},
		{"of our own process ID, used again", RunName("x") + "-node", true},
		{"with another prefix", fmt.Sprintf("y-%d-node", gone.Process.Pid), false},
		{"without a number", "x-node", false},
		{"with a number that is no process", "x-0-node", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isStale(tc.leftover, "x"); got != tc.want {
				t.Errorf("isStale(%q) = %v, want %v", tc.leftover, got, tc.want)
			}
		})
	}
}

func TestLeftoversOfAKilledRunAreRemoved(t *testing.T) {
	requireRoot(t)
	runDir := t.TempDir()
	top, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	prefix := testPrefix + "-stale"
	ours := filepath.Join(runDir, RunName(prefix), "bpf")
	if err := os.MkdirAll(ours, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MountBPF(ours); err != nil {
		t.Fatal(err)
	}
	ns, err := NewNamespace(RunName(prefix) + "-node")
	if err != nil {
		t.Fatal(err)
	}
	close(ns.work) // as if killed: the name stays
	<-ns.done
	if err := os.Mkdir(filepath.Join(top, RunName(prefix)), 0o755); err != nil {
		t.Fatal(err)
	}
	removed, err := RemoveStale(prefix, top, runDir)
	want := []string{ns.Path(), filepath.Join(top, RunName(prefix)), filepath.Join(runDir, RunName(prefix))}
	if diff := cmp.Diff(want, removed); err != nil || diff != "" {
		t.Errorf("RemoveStale: error %v, removed (-want +got):\n%s", err, diff)
	}
	for _, path := range want {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}
