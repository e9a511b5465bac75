package plan

import (
	"slices"
	"testing"
	"time"
)

// A planner that goes on from the maps in place of another one knows since when backends drain, and clears the places of
// frontends that are gone: of those that were removed, and of those whose operation is dropped.
func TestAResumedPlannerKnowsWhatWaits(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.Tick(time.Unix(1000, 0))
	l.set(t, web, drains(clusterIP(t, vip, b1, b2), time.Minute))
	l.set(t, api, clusterIP(t, "10.96.0.2:80/TCP", b3))
	l.set(t, web, drains(clusterIP(t, vip, b2), time.Minute))
	l.set(t, api) // its frontend is gone, and its place is not cleared
	l.Tick(time.Unix(1030, 0))

	resume := func(dropped []Op) *lab {
		t.Helper()
		p, ops, err := l.Resume(l.model.Content(), dropped, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := &lab{Planner: p, model: l.model}
		next.apply(t, ops)
		next.set(t, web, drains(clusterIP(t, vip, b2), time.Minute))
		return next
	}
	clears := func(ops []Op) bool {
		return slices.ContainsFunc(ops, func(op Op) bool {
			c, ok := op.(ClearFrontend)
			return ok && c.Key == mustAddrPort(t, "10.96.0.2:80/TCP")
		})
	}
	next := resume(nil)
	if at, ok := next.NextDrained(); !ok || !at.Equal(time.Unix(1060, 0)) {
		t.Errorf("drained at %v (%v), want a minute after it left", at, ok)
	}
	if ops := next.Sweep(); !clears(ops) {
		t.Errorf("a sweep does not clear what was removed:\n%s", text(ops))
	}
	dropped := l.SweepTo(l.Mark())
	if !clears(dropped) {
		t.Fatalf("the sweep of the former planner clears nothing:\n%s", text(dropped))
	}
	if ops := resume(dropped).Sweep(); !clears(ops) {
		t.Errorf("a sweep does not clear what the dropped operations were to clear:\n%s", text(ops))
	}
}
