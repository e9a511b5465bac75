package agent

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGarbageIsCollectedSoonerUnlessTheEnvironmentSaysWhen(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, c := range []struct {
		gogc, limit string
		want        int
	}{
		{"", "", garbageAtFirst}, {"200", "", 100}, {"", "1GiB", 100},
	} {
		t.Setenv("GOGC", c.gogc)
		t.Setenv("GOMEMLIMIT", c.limit)
		collectGarbageAt(garbageAtFirst)
		if got := debug.SetGCPercent(100); got != c.want {
			t.Errorf("GOGC=%s GOMEMLIMIT=%s: collected at %d percent, want %d", c.gogc, c.limit, got, c.want)
		}
	}
}

func TestASmallHeapIsCollectedLessOften(t *testing.T) {
	for live, want := range map[uint64]int{1 << 20: garbageOfSmall, smallHeap: garbageOfSmall, smallHeap + 1: garbageLater, 1 << 30: garbageLater} {
		if got := (heap{live: live}).garbage(); got != want {
			t.Errorf("%d bytes in use: %d %% of garbage, want %d", live, got, want)
		}
	}
}

func TestMemoryIsReturnedAtRestWhereThereIsMuch(t *testing.T) {
	const mib = 1 << 20
	before, least := heap{allocated: 1000 * mib, live: 40 * mib, resident: 70 * mib}, heap{live: 40 * mib, resident: 45 * mib}
	for _, c := range []struct {
		name string
		now  heap
		want bool
	}{
		{"nothing goes on, and the changes before left much", heap{1001 * mib, 40 * mib, 70 * mib}, true},
		{"changes go on", heap{1004 * mib, 40 * mib, 70 * mib}, false},
		{"a large agent is scraped", heap{1009 * mib, 200 * mib, 300 * mib}, true},
		{"nothing goes on, and there is hardly more than before", heap{1001 * mib, 40 * mib, 49 * mib}, false},
	} {
		if got := c.now.isAtRest(before) && c.now.isWorthReturning(least); got != c.want {
			t.Errorf("%s: memory is returned: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestTheRuntimeKnowsWhatIsAskedOfIt(t *testing.T) {
	kept := make([]byte, 1<<20)
	debug.FreeOSMemory()
	defer runtime.KeepAlive(kept)
	if h := readHeap(); h.allocated < uint64(len(kept)) || h.live < uint64(len(kept)) || h.resident < h.live {
		t.Errorf("with %d bytes at least the heap is %+v", len(kept), h)
	}
}
