package datapath

import "testing"

func TestProcessesAreWithinACgroupByItsPath(t *testing.T) {
	for _, tc := range []struct {
		text, cgroup string
		want         bool
	}{
		{"4:memory:/a\n0::/kubepods/pod1\n", "0::/kubepods", true},
		{"0::/kubepods\n", "0::/kubepods", true},
		{"0::/kubepods2\n", "0::/kubepods", false},
		{"4:memory:/kubepods\n0::/system\n", "0::/kubepods", false},
		{"0::/system\n", "0::", true}, // the root
		{"0::/\n", "0::/", true},
		{"0::/../pod1\n", "0::/kubepods", true}, // seen from another cgroup namespace
		{"", "0::", false},                      // it is gone
	} {
		if got := isWithin(tc.text, tc.cgroup); got != tc.want {
			t.Errorf("%q is within %s: %v, want %v", tc.text, tc.cgroup, got, tc.want)
		}
	}
}

func TestThePartOfCgroupsIsBelowTheRoot(t *testing.T) {
	for _, tc := range []struct {
		id               uint64
		path, root, want string
	}{
		{7, "/sys/fs/cgroup/kubepods", "/sys/fs/cgroup", "/kubepods"},
		{7, "/sys/fs/cgroup", "/sys/fs/cgroup", ""},
		{rootCgroup, "/host/cgroup", "/sys/fs/cgroup", ""},
		{7, "/host/cgroup", "", "/host/cgroup"},
	} {
		if got := partOf(tc.id, tc.path, tc.root); got != tc.want {
			t.Errorf("%d at %s with the root at %q: %q, want %q", tc.id, tc.path, tc.root, got, tc.want)
		}
	}
}
