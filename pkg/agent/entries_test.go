package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/metrics"
)

func TestProgramsOfPodsHaveSeriesOnlyWhereTheyAreMissing(t *testing.T) {
	hooks := []datapath.Hook{{Name: "in", Attached: true}, {Name: "out"}}
	got := programMetrics(datapath.Status{
		Hooks:   []datapath.Hook{{Name: "connect4", Attached: true}},
		Devices: []datapath.Device{{Name: "eth0", Hooks: hooks}, {Name: "veth1", Pod: true, Hooks: hooks}},
	})
	want := []metrics.Program{
		{Hook: "connect4", Attached: true},
		{Hook: "in", Device: "eth0", Attached: true}, {Hook: "out", Device: "eth0"},
		{Hook: "out", Device: "veth1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
}

func TestEntriesAreCountedWhenSomebodyAsksAndNotAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e, times := newEntryCounts(), atomic.Uint32{} // simulated time orders, but does not synchronize
		go e.watch(ctx, func() (map[string]uint32, error) {
			n := times.Add(1)
			time.Sleep(100 * time.Millisecond) // the longer it takes, the longer it is not done again
			return map[string]uint32{"flow_table": n}, nil
		}, zap.NewNop())
		want := func(after time.Duration, counted uint32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := times.Load(); got != counted {
				t.Errorf("counted %d times, want %d", got, counted)
			}
		}
		want(time.Hour, 0)
		if got := e.get(); got != nil {
			t.Errorf("there are counts before any: %v", got)
		}
		want(time.Second, 1)
		for range 3 {
			if got := e.get()["flow_table"]; got != 1 {
				t.Errorf("%d entries, want those of the first time", got)
			}
		}
		want(90*time.Second, 1)
		want(20*time.Second, 2)
		want(time.Hour, 2)
		cancel()
	})
}
