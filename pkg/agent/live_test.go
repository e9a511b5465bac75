package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

func TestOnlyAChangeThatIsInTheKernelIsTheLast(t *testing.T) {
	l := newLive(Config{Manifests: "dir"}, time.Now())
	at := time.Now()
	for _, a := range []reconciler.Attempt{
		{Ended: at, Err: errors.New("no room"), Batch: reconciler.Batch{Services: 1}},
		{Ended: at}, // nothing has changed
	} {
		if l.changed(a); l.get().Change != nil {
			t.Errorf("%+v is a change", a)
		}
	}
	l.changed(reconciler.Attempt{Began: at.Add(-time.Millisecond), Ended: at, Batch: reconciler.Batch{Slices: 1}})
	if got := l.get(); got.Change == nil || got.Change.Took != time.Millisecond || got.Follows != "dir" || got.PID == 0 {
		t.Errorf("it says %+v", got)
	}
}

func TestARefusalIsOfTheServiceThatHasMore(t *testing.T) {
	web := plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "web"}}
	api := plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "api"}}
	for _, tc := range []struct {
		before, now dropsSeen
		want        string
	}{
		{dropsSeen{}, dropsSeen{web, map[string]uint64{"b": 1, "a": 1}}, "a"},
		{dropsSeen{web, map[string]uint64{"a": 1}}, dropsSeen{web, map[string]uint64{"a": 1}}, ""},
		{dropsSeen{web, map[string]uint64{"a": 1}}, dropsSeen{web, map[string]uint64{"a": 1, "b": 2}}, "b"},
		{dropsSeen{web, map[string]uint64{"a": 5}}, dropsSeen{api, map[string]uint64{"a": 1}}, "a"},
	} {
		if got := more(tc.before, tc.now); got != tc.want {
			t.Errorf("%v, then %v: %q, want %q", tc.before, tc.now, got, tc.want)
		}
	}
}
