package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/cgroup"
)

func TestPodsReachEachOtherAndTheNodeAtOnce(t *testing.T) {
	topology := mustTopology(t)
	server := mustServe(t, topology.Pod("web"), "web", serverAddrs)
	mustServe(t, topology.Node, "node", nodeAddrs)
	client := mustClient(t, topology.Pod("client"), nil)
	for _, tc := range []struct {
		name, want string
		addrs      []netip.Addr
	}{
		{"another pod", "web", serverAddrs},
		{"the node", "node", nodeAddrs},
	} {
		for _, kind := range []Kind{TCP, UDPConnected, UDPUnconnected} {
			t.Run(tc.name+" by "+string(kind), func(t *testing.T) {
				job := Job{Kind: kind, Targets: ports(tc.addrs, 8080), Count: 20, Workers: 2, PerSocket: 5}
				result := mustRun(t, client, job)
				want := map[string]int{tc.want: 20}
				if diff := cmp.Diff(want, result.Answers(func(netip.AddrPort) bool { return true })); diff != "" {
					t.Errorf("answers (-want +got):\n%s%v", diff, result.Failures())
				}
			})
		}
	}
	if count, last := server.TCP(); count != 20 || time.Since(last) > time.Minute {
		t.Errorf("the server counted %d connections, the last at %s, want 20, just now", count, last)
	}
	if count, _ := server.UDP(); count != 40 {
		t.Errorf("the server counted %d datagrams, want 40", count)
	}
}

func TestConnectIsTimedWithoutItsWarmUp(t *testing.T) {
	topology := mustTopology(t)
	mustServe(t, topology.Pod("web"), "web", serverAddrs)
	client := mustClient(t, topology.Pod("client"), nil)
	result := mustRun(t, client, Job{Kind: Connect, Targets: ports(serverAddrs, 8080), Count: 10, WarmUp: 3})
	if len(result.Nanos) != 10 || slices.Min(result.Nanos) <= 0 || result.Failed() != 0 {
		t.Errorf("got durations %v and %d failures, want 10 and none", result.Nanos, result.Failed())
	}
}

func TestAClientEndsAJobWithoutAnEndAndTakesTheNext(t *testing.T) {
	topology := mustTopology(t)
	mustServe(t, topology.Pod("web"), "web", serverAddrs)
	client := mustClient(t, topology.Pod("client"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	reported := 0
	result, err := client.Run(ctx, Job{Kind: TCP, Targets: ports(serverAddrs, 8080), Rate: 200}, func(done int) {
		reported = done
		cancel()
	})
	if err != nil || result.Failed() > 0 || reported == 0 {
		t.Fatalf("first job: %d reported, %v, error %v", reported, result.Failures(), err)
	}
	if next := mustRun(t, client, Job{Kind: TCP, Targets: ports(serverAddrs, 8080), Count: 4}); next.Failed() > 0 {
		t.Errorf("next job: %v", next.Failures())
	}
}

func TestAClientThatDiesIsReported(t *testing.T) {
	topology := mustTopology(t)
	client := mustClient(t, topology.Pod("client"), nil)
	if err := client.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := client.Run(t.Context(), Job{Kind: TCP, Targets: ports(serverAddrs, 8080)}, nil)
	if err == nil {
		t.Error("Run gives no error")
	}
}

func TestAClientRunsInItsCgroup(t *testing.T) {
	topology := mustTopology(t)
	parent, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := NewCgroup(parent, testName(t))
	if err != nil {
		t.Fatal(err)
	}
	client := mustClient(t, topology.Node, cgroup)
	members, err := os.ReadFile(filepath.Join(cgroup.Path, "cgroup.procs"))
	if want := fmt.Sprintln(client.cmd.Process.Pid); err != nil || string(members) != want {
		t.Errorf("cgroup has processes %q, error %v, want %q", members, err, want)
	}
	// With the client still inside.
	if err := cgroup.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cgroup.Path); !os.IsNotExist(err) {
		t.Errorf("after Close the cgroup is still there: %v", err)
	}
}

func TestNothingIsLeftOfATopology(t *testing.T) {
	requireRoot(t)
	before := lines(t, "/proc/self/mountinfo")
	for _, round := range []string{"first", "second"} {
		topology, err := NewTopology(testSpec(t))
		if err != nil {
			t.Fatalf("%s time: %s", round, err)
		}
		var inodes []uint64
		for _, ns := range []*Namespace{topology.Node, topology.Pod("web"), topology.Pod("client")} {
			inodes = append(inodes, inode(t, ns.Path()))
		}
		sleeper := exec.Command("sleep", "1000")
		if err := topology.Pod("web").Start(sleeper); err != nil {
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
	if left, _ := filepath.Glob(filepath.Join(netnsDir, testName(t)+"*")); len(left) > 0 {
		t.Errorf("names left: %v", left)
	}
	if diff := cmp.Diff(before, lines(t, "/proc/self/mountinfo")); diff != "" {
		t.Errorf("mounts (-before +after):\n%s", diff)
	}
}

func TestNothingIsLeftOfATopologyThatCannotBeMade(t *testing.T) {
	requireRoot(t)
	spec := testSpec(t)
	spec.Pods[1].Name = "much-too-long-for-a-device"
	_, err := NewTopology(spec)
	if err == nil || !strings.Contains(err.Error(), "much-too-long") {
		t.Errorf("NewTopology: error %v, want one that names the pod", err)
	}
	if left, _ := filepath.Glob(filepath.Join(netnsDir, testName(t)+"*")); len(left) > 0 {
		t.Errorf("names left: %v", left)
	}
}
