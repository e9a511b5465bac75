package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/metrics"
)

// How often entries of maps are counted that must be gone through for that: when
// somebody asks, but after so long at least, and so that counting takes no more than a
// thousandth of a CPU.
const (
	countEvery = 30 * time.Second
	countShare = 1000
)

// entryCounts is how many entries maps had when they were counted last, by name.
// Scrapes read it, since counting a large map would keep them waiting. The map is
// never changed.
type entryCounts struct {
	mu    sync.Mutex
	last  map[string]uint32
	asked chan struct{}
}

func newEntryCounts() *entryCounts { return &entryCounts{asked: make(chan struct{}, 1)} }

// watch counts when somebody has asked, until the context ends.
func (e *entryCounts) watch(ctx context.Context, count func() (map[string]uint32, error), log *zap.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.asked:
		}
		began := time.Now()
		counts, err := count()
		if err != nil {
			log.Debug("count the entries of maps", zap.Error(err))
		}
		e.mu.Lock()
		e.last = counts
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(countEvery, countShare*time.Since(began))):
		}
	}
}

// get returns the last counts, and asks for others.
func (e *entryCounts) get() map[string]uint32 {
	select {
	case e.asked <- struct{}{}:
	default: // asked already
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// mapMetrics returns the maps as metrics have them.
func mapMetrics(infos []datapath.MapInfo) (out []metrics.Map) {
	for _, m := range infos {
		out = append(out, metrics.Map{Name: m.Name, Entries: m.Entries, MaxEntries: m.MaxEntries, Bytes: m.Bytes})
	}
	return out
}

// programMetrics returns the programs. Devices of pods come and go by the hundred:
// only those are told of where something is missing. Without a device on which others reach the
// node its programs are missing, too.
func programMetrics(s datapath.Status) (out []metrics.Program) {
	for _, h := range s.Hooks {
		out = append(out, metrics.Program{Hook: h.Name, Attached: h.Attached})
	}
	if !slices.ContainsFunc(s.Devices, func(d datapath.Device) bool { return !d.Pod }) {
		out = append(out, metrics.Program{Hook: "device_in"}, metrics.Program{Hook: "device_out"})
	}
	for _, d := range s.Devices {
		for _, h := range d.Hooks {
			if !d.Pod || !h.Attached {
				out = append(out, metrics.Program{Hook: h.Name, Device: d.Name, Attached: h.Attached})
			}
		}
	}
	return out
}
