package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// writeEvent takes an event as the API server does: what it would refuse is an
// error of the test.
func (a *api) writeEvent(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.tb.Error(err)
	}
	at := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/"), "/")
	if r.Method == http.MethodPatch {
		a.patchEvent(w, objects.Key{Namespace: at[0], Name: path.Base(r.URL.Path)}, body)
		return
	}
	e := &eventsv1.Event{}
	if err := runtime.DecodeInto(a.codecs.UniversalDeserializer(), body, e); err != nil {
		a.tb.Errorf("event: %v", err)
	}
	if e.EventTime.IsZero() || e.ReportingController == "" || e.ReportingInstance == "" || len(e.ReportingInstance) > 128 ||
		e.Action == "" || e.Reason == "" || e.Type != "Warning" || len(e.Note) > 1024 || (e.Regarding.Namespace != at[0] && (e.Regarding.Kind != "Node" || at[0] != "default")) || e.Namespace != at[0] {
		a.tb.Errorf("event would be refused: %+v", e)
	}
	exists := false
	a.with(func() {
		if exists = a.events[objects.KeyOf(e)] != nil; !exists {
			a.events[objects.KeyOf(e)] = e
		}
	})
	if exists {
		a.refuse(w, http.StatusConflict)
		return
	}
	_, _ = w.Write(a.encode(e))
}

func (a *api) patchEvent(w http.ResponseWriter, n objects.Key, body []byte) {
	var patch struct{ Series *eventsv1.EventSeries }
	if err := json.Unmarshal(body, &patch); err != nil || patch.Series == nil || patch.Series.Count < 2 {
		a.tb.Errorf("patch %s: %v", body, err)
	}
	var e *eventsv1.Event
	a.with(func() {
		if e = a.events[n]; e != nil {
			e.Series = patch.Series
		}
	})
	if e == nil {
		a.refuse(w, http.StatusNotFound)
		return
	}
	_, _ = w.Write(a.encode(e))
}

// written returns the events, as what they say.
func (a *api) written() (out []string) {
	a.with(func() {
		for _, e := range a.events {
			out = append(out, fmt.Sprintf("%s %s/%s %s: %s", e.Reason, e.Regarding.Namespace, e.Regarding.Name, e.Regarding.UID, e.Note))
		}
	})
	return out
}

func uid(u string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.UID = types.UID("uid-" + u) }
}

func problem(object, field string) lb.Problem {
	return lb.Problem{Object: object, Field: field, Value: "x", Reason: "is wrong", Remedy: "mend it"}
}

func TestAProblemBecomesAnEventOnItsService(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80, uid("1")), endpoints("web-1", "web", "10.244.1.1"))
	r := mustStart(t, a, mustNew(t, a))
	r.source.Report([]lb.Problem{
		problem("Service default/web", "spec.a"), problem("EndpointSlice default/web-1", "ports"),
		problem("Service default/gone", "spec.a"), problem("EndpointSlice default/gone", "ports"), problem("ServiceCIDR kubernetes", "spec"),
		problem("Node node-a", "programs"),
	})
	eventually(t, "three events", func() bool { return len(a.written()) == 3 })
	eventually(t, "a look for those that are gone", func() bool { return a.count("list endpointslices") >= 2 && a.count("list services") >= 3 })
	got := a.written()
	want := []string{
		`CannotProgram /node-a node-a: Node node-a: programs "x": is wrong; mend it`,
		`CannotProgram default/web uid-1: EndpointSlice default/web-1: ports "x": is wrong; mend it`,
		`CannotProgram default/web uid-1: Service default/web: spec.a "x": is wrong; mend it`,
	}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestASecondNodeWritesNoSecondEvent(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80, uid("1")))
	for _, node := range []string{"node-a", strings.Repeat("b", 200)} {
		r := mustStart(t, a, mustNew(t, a, func(c *Config) { c.Node = node }))
		posts := a.count("post events")
		r.source.Report([]lb.Problem{problem("Service default/web", "spec.a")})
		eventually(t, "a request", func() bool { return a.count("post events") > posts })
	}
	if got := a.written(); len(got) != 1 {
		t.Errorf("%d events, want 1: %s", len(got), got)
	}
}

func TestAnEventThatMayNotBeWrittenIsAProblem(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80, uid("1")))
	a.with(func() { a.refusals["events"] = http.StatusForbidden })
	r := mustStart(t, a, mustNew(t, a))
	r.until("node node-a ", "service web 80")
	r.source.Report([]lb.Problem{problem("Service default/web", "spec.a")})
	r.until("node node-a ", "problem Event ", "service web 80")
	want := "Event: may not be written: no, said the test; allow the agent's ServiceAccount to create and patch events of events.k8s.io"
	if got := r.last.Problems[0].Error(); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestANoteIsNoLongerThanTheServerTakes(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80, uid("1")))
	r := mustStart(t, a, mustNew(t, a))
	p := problem("Service default/web", "spec.a")
	p.Reason = strings.Repeat("ü", 1000)
	r.source.Report([]lb.Problem{p})
	eventually(t, "an event", func() bool { return len(a.written()) == 1 })
}

// notes is a recorder that notes when it was asked.
type notes struct {
	mu     sync.Mutex // simulated time orders, but does not synchronize
	began  time.Time
	calls  []string
	events map[string]bool // that there are
	fail   error
}

func (n *notes) create(_ context.Context, p lb.Problem) (eventName, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf("%s create %s", time.Since(n.began).Round(time.Second), p.Field))
	ours := !n.events[p.Field]
	if n.fail == nil {
		n.events[p.Field] = true
	}
	return eventName{Name: p.Field}, ours, n.fail
}

func (n *notes) repeat(_ context.Context, at eventName, count int32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf("%s repeat %s %d", time.Since(n.began).Round(time.Second), at.Name, count))
	if !n.events[at.Name] {
		return apierrors.NewNotFound(schema.GroupResource{}, at.Name)
	}
	return n.fail
}

// telling runs a test in simulated time.
func telling(t *testing.T, test func(t *testing.T, e *events, n *notes)) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{began: time.Now(), events: map[string]bool{}}
		e := newEvents(n, func(error) {})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.run(ctx)
		test(t, e, n)
	})
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if diff := cmp.Diff(want, n.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	n.calls = nil
}

// heard returns the calls since the last said.
func (n *notes) heard() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// said forgets the calls.
func (n *notes) said() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = nil
}

// lose forgets calls and events.
func (n *notes) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls, n.events = nil, map[string]bool{}
}

// answer makes calls fail, or succeed with nil.
func (n *notes) answer(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

func TestAProblemIsToldOnceAndAgainWhileItStands(t *testing.T) {
	telling(t, func(t *testing.T, e *events, n *notes) {
		p := []lb.Problem{problem("Service default/web", "a")}
		for range 3 {
			e.report(p)
			e.report(nil) // it comes and goes
			e.report(p)
			time.Sleep(time.Second)
		}
		n.want(t, "0s create a")
		time.Sleep(45 * time.Minute)
		synctest.Wait()
		if len(n.heard()) == 0 || !strings.HasSuffix(n.heard()[0], "repeat a 2") {
			t.Errorf("after 45 minutes %q", n.heard())
		}
		n.lose() // the server has forgotten it
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if len(n.heard()) < 2 || !strings.HasSuffix(n.heard()[1], "create a") {
			t.Errorf("after the server forgot it %q", n.heard())
		}
		n.said()
		e.report(nil)
		time.Sleep(3 * time.Hour)
		n.want(t)
		e.report(p)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(n.heard()) != 1 {
			t.Errorf("solved for hours and back: %q", n.heard())
		}
	})
}

func TestManyProblemsAreToldSlowly(t *testing.T) {
	telling(t, func(t *testing.T, e *events, n *notes) {
		var all []lb.Problem
		for i := range 1000 {
			all = append(all, problem("Service default/web", fmt.Sprint(i)))
		}
		e.report(all)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(n.heard()); got < 30 || got > 40 {
			t.Errorf("%d requests in a minute, want 25 and one more every 5 s", got)
		}
		e.report(nil)
		n.said()
		time.Sleep(time.Minute)
		n.want(t)
	})
}

func TestAServerThatFailsIsAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		name        string
		fail        error
		early, late time.Duration
	}{
		{"out of reach", io.ErrUnexpectedEOF, 29 * time.Second, time.Minute},
		{"forbidden", apierrors.NewForbidden(schema.GroupResource{}, "a", nil), 9 * time.Minute, 11 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			telling(t, func(t *testing.T, e *events, n *notes) {
				n.answer(tc.fail)
				e.report([]lb.Problem{problem("Service default/web", "a")})
				time.Sleep(tc.early)
				n.want(t, "0s create a")
				n.answer(nil)
				time.Sleep(tc.late - tc.early + time.Second)
				synctest.Wait()
				if len(n.heard()) != 1 {
					t.Errorf("calls %q, want one", n.heard())
				}
			})
		})
	}
}
