package traffic

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnUnknownTopologyIsNamed(t *testing.T) {
	_, err := BuiltinTopology("moon", "x")
	if err == nil || !strings.Contains(err.Error(), `no built-in topology is named "moon": there are node, pair, vxlan, zones`) {
		t.Errorf("error is %v", err)
	}
}

func TestNothingIsLeftOfATopology(t *testing.T) {
	requireRoot(t)
	before := lines(t, "/proc/self/mountinfo")
	spec, err := BuiltinTopology("node", testName(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"first", "second"} {
		topology, err := NewTopology(spec)
		if err != nil {
			t.Fatalf("%s time: %s", round, err)
		}
		var inodes []uint64
		for _, m := range spec.Machines {
			inodes = append(inodes, inode(t, topology.Namespace(m.Name).Path()))
		}
		sleeper := exec.Command("sleep", "1000")
		if err := topology.Namespace("server-1").Start(sleeper); err != nil {
			t.Fatal(err)
		}
		if err := topology.Close(); err != nil {
			t.Errorf("%s time: close: %s", round, err)
		}
		if err := sleeper.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s time: the process inside ended with %v, want it killed", round, err)
		}
		for _, user := range threadsIn(t, inodes) {
			t.Errorf("%s time: %s still uses a namespace", round, user)
		}
	}
	wantNoNames(t)
	if diff := cmp.Diff(before, lines(t, "/proc/self/mountinfo")); diff != "" {
		t.Errorf("mounts (-before +after):\n%s", diff)
	}
}

func TestNothingIsLeftOfATopologyThatCannotBeMade(t *testing.T) {
	requireRoot(t)
	spec, err := BuiltinTopology("pair", testName(t))
	if err != nil {
		t.Fatal(err)
	}
	const long = "much-too-long-for-a-device"
	spec.Machines = append(spec.Machines, Machine{Name: long, Addrs: spec.Machines[0].Addrs})
	spec.Links = append(spec.Links, Link{A: "node-a", B: long})
	if _, err := NewTopology(spec); err == nil || !strings.Contains(err.Error(), long) {
		t.Errorf("NewTopology: error %v, want one that names the machine", err)
	}
	wantNoNames(t)
}

// wantNoNames fails if names of namespaces are left.
func wantNoNames(tb testing.TB) {
	tb.Helper()
	if left, _ := filepath.Glob(filepath.Join(netnsDir, testName(tb)+"*")); len(left) > 0 {
		tb.Errorf("names left: %v", left)
	}
}

func TestWorkThatEndsItsThreadIsAnError(t *testing.T) {
	requireRoot(t)
	ns, err := NewNamespace(testName(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("the work that ended its thread is none")
	}
	if err := ns.Do(func() error { return nil }); err == nil {
		t.Error("work without a thread is none")
	}
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
}
