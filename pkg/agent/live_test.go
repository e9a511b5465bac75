package agent

import (
	"context"
	"errors"
	"slices"
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
		want        []string
	}{
		{dropsSeen{}, dropsSeen{web, map[string]uint64{"b": 1, "a": 1}}, []string{"a", "b"}},
		{dropsSeen{web, map[string]uint64{"a": 1}}, dropsSeen{web, map[string]uint64{"a": 1}}, nil},
		{dropsSeen{web, map[string]uint64{"a": 1}}, dropsSeen{web, map[string]uint64{"a": 1, "b": 2}}, []string{"b"}},
		{dropsSeen{web, map[string]uint64{"a": 5}}, dropsSeen{api, map[string]uint64{"a": 1}}, []string{"a"}},
	} {
		if got := more(tc.before, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("%v, then %v: %q, want %q", tc.before, tc.now, got, tc.want)
		}
	}
}

func TestAFaultIsToldOfForAMinute(t *testing.T) {
	now := time.Now()
	fault := func(service string, ago time.Duration) Refused {
		return Refused{At: now.Add(-ago), Service: service, Reason: "table_full"}
	}
	known := []Refused{fault("web", 30*time.Second), fault("api", 59*time.Second), fault("dns", 2*time.Minute)}
	got := withFaults(known, []Refused{fault("web", 0)}, now)
	if want := []Refused{fault("web", 0), fault("api", 59*time.Second)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	l := newLive(Config{}, now)
	l.now.Faults = []Refused{fault("web", 0), fault("dns", 2*time.Minute)}
	if got := l.get().Faults; !slices.Equal(got, l.now.Faults[:1]) {
		t.Errorf("told of are %v, want that of the last minute alone", got)
	}
	var lines []string
	l.now.Faults = append(l.now.Faults, Refused{At: now, Service: "api", Reason: "snat_exhausted"})
	for _, p := range l.problems("node-a") {
		lines = append(lines, p.Error())
	}
	want := []string{
		"Node node-a: snat_exhausted: this node refused clients of api within the last minute; " + Faults["snat_exhausted"],
		"Node node-a: table_full: this node refused clients of web within the last minute; " + Faults["table_full"],
	}
	if !slices.Equal(lines, want) {
		t.Errorf("problems are %q, want %q", lines, want)
	}
}

// An agent says that it is starting until all that it waits for is done.
func TestAnAgentIsStartingUntilAllIsDone(t *testing.T) {
	l := newLive(Config{}, time.Now())
	one, two := make(chan struct{}), make(chan struct{})
	close(one)
	ended, end := context.WithCancel(t.Context())
	end()
	l.begins(ended, one, two)
	if !l.get().Starting {
		t.Error("it is not starting with something left to do")
	}
	close(two)
	l.begins(t.Context(), one, two)
	if l.get().Starting {
		t.Error("it is starting with everything done")
	}
}
