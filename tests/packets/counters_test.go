package packets

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
)

// counters returns every counter and every drop reason, those drops that are
// told of a Service with its name. What is noted of the health of backends is left
// out: healthStories tell of that.
func (r *rig) counters(tb testing.TB) map[string]uint64 {
	tb.Helper()
	i, err := datapath.Inspect(r.root)
	if err != nil {
		tb.Fatal(err)
	}
	defer i.Close()
	status, err := i.Status()
	if err != nil {
		tb.Fatal(err)
	}
	all := maps.Clone(status.Counters)
	maps.DeleteFunc(all, func(name string, _ uint64) bool { return strings.HasPrefix(name, "backend_") })
	for reason, n := range status.Drops {
		all["drop "+reason] = n
	}
	for id, service := range r.told.Services {
		drops, err := i.Drops(id)
		if err != nil {
			tb.Fatal(err)
		}
		for reason, n := range drops {
			all["drop "+reason+" of "+service.Name] += n
		}
	}
	return all
}

// wantCounts compares what was counted since the last call.
func (r *rig) wantCounts(tb testing.TB, want map[string]uint64) {
	tb.Helper()
	now := r.counters(tb)
	got := map[string]uint64{}
	for name, n := range now {
		if n != r.counted[name] {
			got[name] = n - r.counted[name]
		}
	}
	r.counted = now
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("counted (-want +got):\n%s", diff)
	}
}
