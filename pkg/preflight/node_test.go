package preflight

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestAMachineThatHasEverythingIsOK(t *testing.T) {
	cgroup, root := testenv.Cgroup(t), testenv.BPFRoot(t)
	r := &Report{}
	cfg := datapath.Config{Cgroup: cgroup, Root: root}
	if !r.kernel(cfg, datapath.Examine(cfg)) {
		t.Error("nothing can be asked of the kernel")
	}
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
	cfg := datapath.Config{Cgroup: dir, Root: dir}
	if r.kernel(cfg, datapath.Examine(cfg)) {
		t.Error("a directory can be asked for its programs")
	}
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

func TestAMachineThatLacksEverythingIsSaidSo(t *testing.T) {
	lacks := func(what string) error { return errors.New("no " + what) }
	s := datapath.Support{Release: "6.1", Cgroup: "/c", CgroupType: lacks("cgroup2"), FileSystem: lacks("bpffs"), Namespaces: lacks("namespaces"), Programs: lacks("BTF"),
		Substitutes: datapath.Substitutes{Devices: "by filters", Failures: "by sock_ops", Sockets: "by diag"}}
	r := &Report{}
	r.kernel(datapath.Config{Root: "/b"}, s)
	wantFound(t, r, "ok kernel: Linux 6.1", "ok privileges: may load and attach programs", "warning namespaces-hidden: no namespaces",
		"failure cgroup-missing: no cgroup2", "failure bpf-missing: no bpffs", "failure programs-refused: no BTF",
		"warning devices-by-filters: programs are by filters", "warning failures-by-sock-ops: failed connections are by sock_ops",
		"warning sockets-by-diag: sockets are by diag")
	r = &Report{}
	if r.kernel(datapath.Config{}, datapath.Support{Kernel: lacks("new kernel")}) {
		t.Error("an old kernel can be asked for programs")
	}
	wantFound(t, r, "failure kernel-old: no new kernel", "ok privileges: may load and attach programs", "ok namespaces: those of pods can be found",
		"failure cgroup-missing: no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup")
}

func TestFiltersThatAreAskedForAreInOrder(t *testing.T) {
	r := &Report{}
	r.substitutes(datapath.Config{Filters: true}, datapath.Support{})
	if got := r.Findings[0].Found; got != "programs are attached to devices by filters (clsact), as --filters says" {
		t.Errorf("found %q", got)
	}
}

func TestATableOfConnectionsThatFillsUpIsSaidSo(t *testing.T) {
	for _, tc := range []struct{ count, most, want string }{
		{"750", "1000", "ok conntrack: 750 of 1000 connections that the kernel tracks"},
		{"751", "1000", "warning conntrack-full: 751 of 1000 connections that the kernel tracks"},
		{"5", "0", "ok conntrack: 5 of 0 connections that the kernel tracks"},
		{"", "", "ok conntrack: the kernel tracks no connections"},
		{"5", "", "warning not-known: the size of the kernel's table of connections cannot be read"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"count": tc.count, "max": tc.most} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, "nf_conntrack_"+name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := &Report{}
		r.conntrack(dir)
		wantFound(t, r, tc.want)
	}
}
