package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
)

// told is a reporter that keeps what it was told last.
type told struct{ last []lb.Problem }

func (t *told) Report(problems []lb.Problem) { t.last = problems }

func TestProblemsReachOwnersMetricsAndTheReport(t *testing.T) {
	dir, tell := filepath.Join(t.TempDir(), "new"), &told{}
	a := newAnswers(Config{StateDir: dir, BPFRoot: "/pins"}, zap.NewNop(), tell, metrics.New("test"))
	a.Problems(nil)
	want := func(when string, lines ...string) {
		t.Helper()
		var got []string
		for _, p := range tell.last {
			got = append(got, p.Error())
		}
		if diff := cmp.Diff(lines, got); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", when, diff)
		}
		r, err := ReadReport(dir, "/pins")
		if diff := cmp.Diff(append([]string{}, lines...), r.Problems); diff != "" || err != nil {
			t.Errorf("%s: report, %v (-want +got):\n%s", when, err, diff)
		}
		_, exposition := get(t, a.metrics.Handler(noConfig), "/metrics")
		wantLine(t, exposition, `headgate_problems{kind="Service"} `, len(lines))
	}
	want("at first")
	web, api := lb.ServiceName{Namespace: "default", Name: "web"}, lb.ServiceName{Namespace: "default", Name: "api"}
	a.Problems([]lb.Problem{{Object: "Service default/web", Reason: "is wrong"}})
	want("one of the input", "Service default/web: is wrong")
	unserved := `: spec.healthCheckNodePort "30000": cannot be served: taken; free the port on the node, or give the Service another`
	a.problems.setUnserved(web, 30000, errors.New("taken"))
	a.problems.setUnserved(api, 30000, errors.New("taken"))
	want("two of health checks", "Service default/web: is wrong", "Service default/api"+unserved, "Service default/web"+unserved)
	a.problems.setUnserved(api, 30000, nil)
	a.Problems(nil)
	want("one is left", "Service default/web"+unserved)
	if r, err := ReadReport(dir, "/others"); err != nil || len(r.Problems) > 0 {
		t.Errorf("the agent of other pins says %v, %v", r, err)
	}
}

func TestAReportThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	core, log := observer.New(zapcore.InfoLevel)
	a := newAnswers(Config{StateDir: file}, zap.New(core), nil, metrics.New("test"))
	for range 3 {
		a.Problems(nil)
	}
	if log.Len() != 1 {
		t.Errorf("%d lines are logged, want 1", log.Len())
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
