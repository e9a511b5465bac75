package agent

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/headgate/headgate/pkg/tick"
)

// How much garbage there may be, in percent of what is in use, before it is collected. While the first
// picture comes nobody waits for a single change, and memory is what is scarce. Later on a change that comes
// while garbage is collected takes longer, and to go through all that is in use takes as long as hundreds of
// changes: so that this should be seldom, and more so where that takes little memory. At rest memory is returned.
const (
	garbageAtFirst = 50
	garbageLater   = 100
	garbageOfSmall = 200
)

// smallHeap is up to how many bytes in use a heap is small.
const smallHeap = 64 << 20

// garbage returns how much there may be once the first picture is in force.
func (h heap) garbage() int {
	if h.live <= smallHeap {
		return garbageOfSmall
	}
	return garbageLater
}

// collectGarbageAt has the collector work at so many percent, unless the environment says what it is to
// go by.
func collectGarbageAt(percent int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent)
	}
}

// restEvery is how often it is looked whether the agent is at rest.
const restEvery = 5 * time.Second

// returnMemory gives back to the system what the first picture took on its way into the
// kernel, as soon as all of it is there, and what changes took, as soon as few come: the runtime by
// itself takes minutes.
func returnMemory(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-ready:
	}
	debug.FreeOSMemory()
	before, least := readHeap(), heap{} // what the first picture took may be in use still
	garbage := before.garbage()
	collectGarbageAt(garbage)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(tick.Next(restEvery)):
		}
		now := readHeap()
		if g := now.garbage(); g != garbage {
			garbage = g
			collectGarbageAt(g)
		}
		if now.isAtRest(before) && now.isWorthReturning(least) {
			debug.FreeOSMemory()
			now = readHeap()
			least = now
		}
		before = now
	}
}

// heap is what Go has of the node's memory, in bytes.
type heap struct {
	allocated uint64 // ever
	live      uint64 // when garbage was collected last
	resident  uint64 // with garbage and gaps
}

// readHeap asks the runtime, which stops nothing for it.
func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heap{allocated: value(0), live: value(1), resident: value(2) + value(3) + value(4)}
}

// isAtRest says whether little was allocated since an earlier look: as little as it takes to answer a
// scrape now and then.
func (h heap) isAtRest(before heap) bool { return h.allocated-before.allocated < 1<<20+h.live/16 }

// isWorthReturning says whether there is much more than when memory was returned last. What it takes
// is to go through all that is live once.
func (h heap) isWorthReturning(least heap) bool { return h.resident > least.resident+2<<20+h.live/16 }
