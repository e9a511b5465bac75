package datapath_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// An agent dies while it replaces programs: those before it and its own are in force, and share
// slots. The next agent goes on from the maps of the one before, so none may name slots that
// these do not: they would be given to other Services.
func TestProgramsOfTwoAgentsHaveTheSameFrontends(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()

	more := []plan.Op{
		plan.PutTable{Table: plan.Table{Offset: 20, Size: 1}, Backends: []uint32{1}},
		plan.PutFrontend{Key: addrPort(10, 80), Value: plan.Frontend{Service: 1, Views: [lb.NumViews]plan.View{lb.Internal: {Table: plan.Table{Offset: 20, Size: 1}}}}},
	}
	mend := spoilLastLink(t, cfg.Root)
	upgraded := cfg
	upgraded.SocketEntries *= 2
	d = mustOpen(t, upgraded)
	_, err := d.Apply(more)
	if attachErr := d.Attach(); attachErr == nil {
		t.Fatalf("all programs were replaced; apply says %v", err)
	}
	d.Close()
	if before, own := pinnedFrontends(t, cfg.Root, "maps"), pinnedFrontends(t, cfg.Root, "next"); before != own {
		t.Errorf("programs that were replaced know %d frontends, the others %d", own, before)
	}

	mend()
	d = mustOpen(t, upgraded)
	mustApply(t, d, more...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, d, append(someOps(), more...)...)
}

// spoilLastLink has a map where the link of the last program is pinned that is replaced, until
// mend is called.
func spoilLastLink(t *testing.T, root string) (mend func()) {
	t.Helper()
	pin, aside := filepath.Join(root, "links", "connect6"), filepath.Join(root, "connect6")
	if err := os.Rename(pin, aside); err != nil {
		t.Fatal(err)
	}
	pinAnything(t, pin)
	return func() {
		if err := os.Rename(aside, pin); err != nil {
			t.Fatal(err)
		}
	}
}

// pinAnything pins a map.
func pinAnything(t *testing.T, at string) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(at); err != nil {
		t.Fatal(err)
	}
}

// pinnedFrontends counts the frontends of the maps that are pinned in a directory.
func pinnedFrontends(t *testing.T, elements ...string) (n int) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(append(elements, "frontends")...), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	empty := make([]byte, m.ValueSize())
	for i := range m.MaxEntries() {
		value, err := m.LookupBytes(i)
		if err != nil {
			t.Fatal(err)
		}
		if string(value) != string(empty) {
			n++
		}
	}
	return n
}
