package preflight

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestAMachineThatHasEverythingIsOK(t *testing.T) {
	cgroup, root := testenv.Cgroup(t), testenv.BPFRoot(t)
	r := &Report{}
	r.kernel(datapath.Config{Cgroup: cgroup, Root: root})
	for _, f := range r.Findings {
		// What the kernel of this machine is too old for has a substitute.
		if f.Level == Failure || f.Level == OK && f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Findings) != 9 || r.Failures > 0 {
		t.Errorf("%d findings, of which %d failures: %v", len(r.Findings), r.Failures, r.Findings)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("something was made below %s: %v", root, err)
	}
}

func TestWhatIsNoCgroupAndNoBPFFileSystemIsAFailure(t *testing.T) {
	testenv.Need(t)
	dir := t.TempDir()
	r := &Report{}
	r.kernel(datapath.Config{Cgroup: dir, Root: dir})
	var got []string
	for _, f := range r.Findings {
		if f.Level == Failure {
			got = append(got, f.Name+": "+f.Found)
		}
	}
	want := []string{"cgroup-missing: cgroup " + dir + ": another kind of file system", "bpf-missing: " + dir + " is in no BPF file system"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] || r.Failures != 2 {
		t.Errorf("%d failures: %q, want %q", r.Failures, got, want)
	}
}

func TestWithoutADeviceForOthersNothingFromOutsideIsBalanced(t *testing.T) {
	testenv.EnterNetns(t)
	r := &Report{}
	r.devices(nil)
	addDevice(t, "leg")
	devices := r.devices([]string{"l*"})
	if len(devices) != 2 {
		t.Errorf("devices %v", devices)
	}
	wantFound(t, r, "warning devices-none: no device is chosen, so packets from outside the node are not balanced",
		"ok devices: packets are balanced at lo, leg")
}

func TestAFilterByTheReversePathMattersWhereADeviceHasNoAddress(t *testing.T) {
	testenv.EnterNetns(t)
	bare := addDevice(t, "leg")
	for _, tc := range []struct{ all, own, want string }{
		{"0", "0", "ok reverse-path: drops no replies at these devices"},
		{"0", "1", "warning rp-filter: leg: no IPv4 address, and rp_filter is not 0"},
		{"2", "0", "warning rp-filter: leg: no IPv4 address, and rp_filter is not 0"},
	} {
		for scope, value := range map[string]string{"all": tc.all, "leg": tc.own} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+scope+"/rp_filter", []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		r := &Report{}
		r.paths([]netdev.Device{{Index: 1, Name: "lo"}, {Index: bare, Name: "leg"}})
		wantFound(t, r, tc.want)
	}
}

func addDevice(tb testing.TB, name string) (index int) {
	tb.Helper()
	d := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "other"}
	if err := netlink.LinkAdd(d); err != nil {
		tb.Fatal(err)
	}
	return d.Index
}

func TestProxiesOfAMeshAreCounted(t *testing.T) {
	r := &Report{}
	r.meshes([]process{{1, "init"}, {7, "linkerd2-proxy"}, {8, "linkerd2-proxy"}, {9, "consul-dataplan"}, {10, "envoy"}})
	wantFound(t, r, "warning mesh: 2 processes of linkerd2-proxy", "warning mesh: 1 process of consul-dataplane")
	r = &Report{}
	r.meshes([]process{{1, "init"}})
	wantFound(t, r, "ok mesh: no proxy of a known mesh is seen here")
}
