package netns_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// mustFill puts so many entries into a pinned map that programs write.
func mustFill(t *testing.T, root, name string, entries int) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i := range entries {
		key := make([]byte, m.KeySize())
		key[0], key[1] = byte(i), byte(i>>8)
		if m.Type() == ebpf.LPMTrie {
			key = append([]byte{64, 0, 0, 0, byte(i), byte(i >> 8)}, make([]byte, m.KeySize()-6)...)
		}
		value := make([]byte, m.ValueSize())
		value[0] = 1 // of a set of flows the tag of a way that is taken
		for b := 64; b < len(value); b++ {
			value[b] = 1 // what stands there is no flow: one that seems silent for hours is freed
		}
		if err := m.Put(key, value); err != nil {
			t.Fatalf("put entry %d into %s: %v", i, name, err)
		}
	}
}

func TestEntriesOfMapsAreCountedOrLeftOut(t *testing.T) {
	const address = "127.0.0.1:20251"
	testenv.Need(t)
	a := testenv.NewAgent(t, map[string]string{"web.yaml": serviceYAML("web", "10.96.0.1")})
	a.Flags = []string{"--metrics-bind-address", address}
	a.Start()
	// Ten entries are five connections; the other numbers are more than one batch, and none.
	filled := map[string]int{"flow_table": 10, "affinities": 5000, "source_ranges": 3, "fragments": 0}
	for name, n := range filled {
		mustFill(t, a.Root, name, n)
	}
	i, err := datapath.Inspect(a.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	counts, err := i.CountEntries()
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(a.Binary, "map", "list", "--bpf-root", a.Root).CombinedOutput()
	if err != nil {
		t.Fatalf("headgate map list: %v: %s", err, list)
	}
	for name, n := range filled {
		if counts[name] != uint32(n) {
			t.Errorf("%s: counted %d entries, want %d", name, counts[name], n)
		}
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^%s +\w+ +\d+ +\d+ +%d +`, name, n))
		if !row.Match(list) {
			t.Errorf("headgate map list has not %d entries of %s:\n%s", n, name, list)
		}
		want := fmt.Sprintf(`headgate_map_entries{map=%q} %d`, name, n)
		eventually(t, want, func() bool { return len(series(t, address, want)) == 1 })
	}
	if !regexp.MustCompile(`(?m)^random_state +\w+ +\d+ +\d+ +- +\d+ +- +`).Match(list) {
		t.Errorf("headgate map list counts what has no entries:\n%s", list)
	}
	if got := series(t, address, `headgate_map_entries{map="random_state"}`); len(got) != 0 {
		t.Errorf("a map that is not counted has a series: %q", got)
	}
}
