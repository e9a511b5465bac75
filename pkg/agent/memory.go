package agent

import (
	"context"
	"os"
	"runtime/debug"
)

// garbage is how much garbage there may be, in percent of what is in use, before it is
// collected. An agent makes little while nothing changes, so that collecting at half of what
// Go does by itself costs only while much changes, and saves a quarter of the heap at rest.
const garbage = 50

// collectGarbage has the collector work by that, unless the environment says what it is to
// go by.
func collectGarbage() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbage)
	}
}

// returnMemory gives back to the system what the first picture took on its way into the
// kernel, as soon as all of it is there: the runtime by itself takes minutes.
func returnMemory(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-ready:
		debug.FreeOSMemory()
	}
}
