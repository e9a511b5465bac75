package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// told is a reporter that keeps what it was told last, and how often it was.
type recorder struct {
	last  []lb.Problem
	times int
}

func (t *recorder) Report(problems []lb.Problem) { t.last, t.times = problems, t.times+1 }

func TestProblemsReachOwnersMetricsAndTheReport(t *testing.T) {
	dir, reports := filepath.Join(t.TempDir(), "new"), &recorder{}
	a := newStatusServer(Config{StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), reports, metrics.New("test"))
	a.Problems(nil)
	want := func(when string, objects int, lines ...string) {
		t.Helper()
		var got []string
		for _, p := range reports.last {
			got = append(got, p.Error())
		}
		if diff := cmp.Diff(lines, got); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", when, diff)
		}
		r, err := ReadReport(dir, "/pins")
		if diff := cmp.Diff(lines, textsOf(r)); diff != "" || err != nil {
			t.Errorf("%s: report, %v (-want +got):\n%s", when, err, diff)
		}
		_, exposition := get(t, a.metrics.Handler(noConfig), "/metrics")
		for scope, n := range map[string]int{"object": objects, "node": len(lines) - objects, "backend": 0} {
			wantLine(t, exposition, `headgate_problems{scope="`+scope+`"} `, n)
		}
	}
	want("at first", 0)
	web, api := lb.ServiceName{Namespace: "default", Name: "web"}, lb.ServiceName{Namespace: "default", Name: "api"}
	a.Problems([]lb.Problem{{Object: "Service default/web", Reason: "is wrong"}})
	want("one of the input", 1, "Service default/web: is wrong")
	unserved := `: spec.healthCheckNodePort "30000": cannot be served: taken; free the port on the node, or give the Service another`
	a.problems.setUnserved(web, 30000, errors.New("taken"))
	a.problems.setUnserved(api, 30000, errors.New("taken"))
	want("two of health checks", 1, "Service default/web: is wrong", "Service default/api"+unserved, "Service default/web"+unserved)
	a.problems.setUnserved(api, 30000, nil)
	a.Problems(nil)
	want("one is left", 0, "Service default/web"+unserved)
	if r, err := ReadReport(dir, "/others"); err != nil || len(r.Problems) > 0 {
		t.Errorf("the agent of other pins says %v, %v", r, err)
	}
}

// textsOf returns the problems of a report, a line each.
func textsOf(r Report) (lines []string) {
	for _, p := range r.Problems {
		lines = append(lines, p.Text)
	}
	return lines
}

func TestProblemsAreReportedWithTheirPartsAndSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now().UTC()
		a := newStatusServer(Config{StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), nil, metrics.New("test"))
		web := lb.Problem{File: "web.yaml", Object: "Service default/web", Field: "spec.type", Value: "Any", Reason: "is no type", Remedy: "write ClusterIP"}
		api := lb.Problem{Scope: lb.ScopeNode, Object: "Service default/api", Reason: "gets less"}
		ofWeb := Problem{"object", web.File, web.Object, web.Field, web.Value, web.Reason, web.Remedy, began, web.Error()}
		ofAPI := Problem{Scope: "node", Object: api.Object, Reason: api.Reason, Since: began.Add(time.Second), Text: api.Error()}
		want := func(all ...Problem) {
			t.Helper()
			r, err := ReadReport(dir, "/pins")
			if diff := cmp.Diff(all, r.Problems); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		a.Problems([]lb.Problem{web})
		want(ofWeb)
		time.Sleep(time.Second)
		a.Problems([]lb.Problem{api, web})
		want(ofAPI, ofWeb)
		a.Problems([]lb.Problem{api})
		want(ofAPI)
		time.Sleep(time.Second)
		a.Problems([]lb.Problem{api, web})
		ofWeb.Since = began.Add(2 * time.Second)
		want(ofAPI, ofWeb)
	})
}

func TestWhateverIsWrongIsToldTogether(t *testing.T) {
	dir, reports := t.TempDir(), &recorder{}
	a := newStatusServer(Config{StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), reports, metrics.New("test"))
	one := func(reason string) []lb.Problem { return []lb.Problem{{Reason: reason}} }
	a.problems.setForce(one("programs"))
	a.problems.setContact(Contact{}, one("contact"))
	a.problems.setProbes(one("probes"))
	a.problems.setEjected(one("ejected"))
	a.problems.setInput(one("input"))
	a.problems.setFaults(one("faults"))
	a.problems.setSockets("destroyed")
	var got []string
	for _, p := range reports.last {
		got = append(got, p.Reason)
	}
	want := []string{"input", "ejected", "probes", "contact", "programs", "faults"}
	r, err := ReadReport(dir, "/pins")
	if !slices.Equal(got, want) || !slices.Equal(textsOf(r), want) || r.Sockets != "destroyed" || err != nil {
		t.Errorf("told %q, reported %+v, %v", got, r, err)
	}
}

func TestServicesThatCannotBeServedAreReportedByName(t *testing.T) {
	dir := t.TempDir()
	a := newStatusServer(Config{StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), nil, metrics.New("test"))
	short := func(object string, unserved bool) lb.Problem {
		return lb.Problem{Scope: lb.ScopeNode, Object: object, Reason: "gets less", Unserved: unserved}
	}
	greedy := lb.Problem{Object: "Service default/greedy", Reason: "asks for more than there is", Unserved: true}
	a.Problems([]lb.Problem{short("Service default/web", true), short("Service default/web", true), short("Service default/api", false), short("Node node-a", true), greedy})
	if r, err := ReadReport(dir, "/pins"); err != nil || !slices.Equal(r.Unserved, []string{"default/web"}) {
		t.Errorf("not served are %q, %v", r.Unserved, err)
	}
	a.Problems(nil)
	if r, err := ReadReport(dir, "/pins"); err != nil || len(r.Unserved) > 0 {
		t.Errorf("once there is room %q are not served, %v", r.Unserved, err)
	}
}

func TestChangesThatCannotBeWrittenAreAProblem(t *testing.T) {
	dir := t.TempDir()
	a := newStatusServer(Config{NodeName: "node-a", StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), nil, metrics.New("test"))
	for i, step := range []struct {
		err  error
		want int
	}{{errors.New("no memory"), 0}, {errors.New("no memory"), 1}, {errors.New("no memory"), 1}, {nil, 0}, {errors.New("no memory"), 0}} {
		a.Flushed(reconciler.Attempt{Err: step.err})
		r, err := ReadReport(dir, "/pins")
		if len(r.Problems) != step.want || step.want > 0 && !strings.Contains(r.Problems[0].Text, "changes of Services cannot be written: no memory") {
			t.Errorf("attempt %d, %v: %q, %v, want %d", i, step.err, textsOf(r), err, step.want)
		}
	}
}

func TestProblemsOfBackendsAreLoggedOnceAndWhenTheyAreSolved(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	a := newStatusServer(Config{}, zap.New(core), nil, metrics.New("test"))
	one := func(reason string) []lb.Problem { return []lb.Problem{{Reason: reason}} }
	a.problems.setProbes(one("refused"))
	a.problems.setEjected(one("silent"))
	a.problems.setEjected(slices.Concat(one("silent"), one("closed")))
	a.problems.setEjected(one("closed"))
	var got []string
	for _, entry := range logs.All() {
		got = append(got, entry.Message+": "+entry.ContextMap()["problem"].(string))
	}
	want := []string{"problem: refused", "problem: silent", "problem: closed", "problem solved: silent"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

func TestHealthChecksThatCannotBeServedAreBounded(t *testing.T) {
	reports := &recorder{}
	a := newStatusServer(Config{}, zap.NewNop(), reports, metrics.New("test"))
	for i := range lb.MostTogether + 2 {
		a.problems.setUnserved(lb.ServiceName{Namespace: "default", Name: strconv.Itoa(i)}, 30000, errors.New("taken"))
	}
	if got := reports.last[len(reports.last)-1].Error(); len(reports.last) != lb.MostTogether+1 || got != "the node: has 2 more problems; mend the others first" {
		t.Errorf("%d are told, at last %q", len(reports.last), got)
	}
}

func TestWhatIsSaidAgainIsNotPassedOnAgain(t *testing.T) {
	for name, dir := range map[string]string{"with a report": t.TempDir(), "without one": ""} {
		reports := &recorder{}
		a := newStatusServer(Config{StateDir: dir}, zap.NewNop(), reports, metrics.New("test"))
		for range 3 {
			wrong := []lb.Problem{{Object: "Node node-a", Reason: "is wrong"}}
			a.Problems(wrong)
			a.problems.setContact(Contact{Server: "a"}, wrong)
			a.problems.setForce(wrong)
			a.problems.setProbes(wrong)
			a.problems.setEjected(wrong)
		}
		if reports.times != 5 || len(reports.last) != 5 {
			t.Errorf("%s: told %d times, of %d problems at last, want 5 and 5", name, reports.times, len(reports.last))
		}
		if a.problems.setContact(Contact{Server: "b"}, nil); len(reports.last) != 4 {
			t.Errorf("%s: told of %d problems when one is over, want 4", name, len(reports.last))
		}
	}
}

func TestAReportThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	core, log := observer.New(zapcore.InfoLevel)
	a := newStatusServer(Config{StateDir: file}, zap.New(core), nil, metrics.New("test"))
	for range 3 {
		a.Problems(nil)
	}
	if n := log.FilterMessage("write the report for headgate status").Len(); n != 1 {
		t.Errorf("%d lines are logged, want 1", n)
	}
}

func TestAReportIsReplacedInOneStep(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := (Report{BPFRoot: "/pins"}).write(dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v; want the report alone", entries, err)
	}
}

// As many backends as there are may fail at once, and as many Services ask for probes.
func TestProblemsOfBackendsAndProbesAreBounded(t *testing.T) {
	many := make([]lb.Problem, lb.MostTogether+5)
	for i := range many {
		many[i] = lb.Problem{Object: "Service default/web", Field: "backend", Value: strconv.Itoa(i), Reason: "does not take connections"}
	}
	reports := &recorder{}
	core, log := observer.New(zapcore.WarnLevel)
	a := newStatusServer(Config{}, zap.New(core), reports, metrics.New("test"))
	for name, set := range map[string]func([]lb.Problem){"backends": a.problems.setEjected, "probes": a.problems.setProbes} {
		set(many)
		if n := len(reports.last); n != lb.MostTogether+1 || reports.last[n-1].Error() != "the node: has 5 more problems; mend the others first" {
			t.Errorf("%s: %d are told, the last is %v", name, n, reports.last[n-1])
		}
		set(nil)
	}
	if n := log.Len(); n == 0 || n > lb.MostTogether/2 {
		t.Errorf("%d lines are logged", n)
	}
}
