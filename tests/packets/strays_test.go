package packets

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mostStrays is how many packets that are of nobody's connection a node may meet in a second, and ask
// others about the next one: STRAYS_PER_SECOND.
const mostStrays = 10000

// straysAreLimited has nodes that have met nearly as many strays as they may. A connection that lives where
// its packets come to is not asked for, so it goes on.
func straysAreLimited(t *testing.T, f *fleet) {
	const left = 5
	f.serve(t, 0, 1)
	lives, _, _ := f.begin(t, 0, 40000)
	moved, home, _ := f.begin(t, 2, 40001)
	for _, backends := range [][]int{{2, 3}, {4, 5}} {
		for _, n := range f.nodes {
			n.learn(t, backends...)
		}
	}
	here, owner, _ := f.begin(t, 0, 40002) // at node 2, the home of all slots now
	for _, n := range f.nodes {
		n.ageSlotChanges(t, 6)
		n.setStrays(t, -3600, mostStrays-left)
	}
	limited := f.nodes[2].counters(t)["strays_limited"]
	asked := 0
	for port := range uint16(2 * left) {
		switch got := f.enter(t, 2, f.packet(41000+port, "A", 0).frame(t)); {
		case got.frames > 3:
			t.Fatalf("a stray makes %d frames between three nodes", got.frames)
		case got.frames > 0:
			asked++
		case got.what != "dropped":
			t.Fatalf("a stray that nobody is asked about is %s", got.what)
		}
	}
	if asked != left {
		t.Errorf("others are asked about %d strays, want %d", asked, left)
	}
	if n := f.nodes[2].counters(t)["strays_limited"] - limited; n != left {
		t.Errorf("%d strays are counted as limited, want %d", n, left)
	}
	f.wants(t, 1, here.with("A"), "delivered", owner, "a connection at its home, amid a flood")
	f.wants(t, 2, moved.with("A"), "dropped", 2, "one that has moved, amid a flood")
	f.nodes[2].setStrays(t, 1, mostStrays)
	f.wants(t, 2, moved.with("A"), "delivered", home, "a second later")
	f.wants(t, 2, lives.with("A"), "delivered", 0, "another one")
	for _, n := range f.nodes {
		n.setStrays(t, 1, 0)
	}
}

// setStrays says how many strays a node has met since so many seconds: of a second that is yet to come
// it says so for as long as a test takes.
func (n *fleetNode) setStrays(t *testing.T, seconds, strays int64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "stray_budgets"), nil)
	must(t, err)
	defer m.Close()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	value := binary.NativeEndian.AppendUint64(nil, uint64(now.Nano()-seconds*1e9))
	must(t, m.Put(uint32(0), binary.NativeEndian.AppendUint64(value, uint64(strays))))
}
