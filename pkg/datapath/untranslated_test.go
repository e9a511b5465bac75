package datapath

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cgroups makes directories, which stand for cgroups, and returns their IDs.
func cgroups(t *testing.T, top string, names ...string) (ids []uint64) {
	t.Helper()
	for _, name := range names {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cgroupID(dir))
	}
	return ids
}

// An agent in a container has its cgroup at a place that is none outside.
func TestACgroupIsFoundWhereverItIsSeen(t *testing.T) {
	top := t.TempDir()
	ids := cgroups(t, top, "node", "node/pod", "node/pod/container", "other")
	link := filepath.Join(t.TempDir(), "cgroup")
	if err := os.Symlink(filepath.Join(top, "node"), link); err != nil {
		t.Fatal(err)
	}
	for name, places := range map[string][]string{
		"where it was named":       {filepath.Join(top, "node")},
		"by a symbolic link":       {link},
		"below a mount":            {"/host/missing", top},
		"below the second mount":   {filepath.Join(top, "other"), top},
		"by a name that is others": {filepath.Join(top, "other"), "/host/missing", top},
	} {
		found, err := cgroupsBelow(places, ids[0])
		got := slices.Sorted(maps.Keys(found))
		if want := slices.Sorted(slices.Values(ids[:3])); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %v (%v), want %v", name, got, err, want)
		}
	}
	if _, err := cgroupsBelow([]string{filepath.Join(top, "other")}, ids[0]); err == nil || !strings.Contains(err.Error(), "is not below "+top+"/other") {
		t.Errorf("of a cgroup that is not seen: %v", err)
	}
}

// Containers come and go while cgroups are looked through.
func TestACgroupThatGoesMeanwhileIsLeftOut(t *testing.T) {
	top := t.TempDir()
	cgroups(t, top, "a", "b")
	gone := filepath.Join(top, "b")
	var seen []string
	err := eachCgroup(top, func(dir string, _ uint64) error {
		seen = append(seen, filepath.Base(dir))
		if filepath.Base(dir) == "a" {
			return os.Remove(gone)
		}
		return nil
	})
	if want := []string{filepath.Base(top), "a"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("seen are %v (%v), want %v", seen, err, want)
	}
	if id, err := existingCgroup(gone); id != 0 || err != nil {
		t.Errorf("of one that is gone: %d, %v, want nothing", id, err)
	}
}
