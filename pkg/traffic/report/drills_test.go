package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// drilled is the example with a drill in it: with rules, the old backend is reached
// for 40 ms and more in each round, and operations fail.
func drilled() *result.Report {
	r := example()
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Labels[ChurnLabel] = "50"
		run.Churn = &result.Churn{Rate: 50, Changes: 49, Elapsed: time.Second}
		run.Events, run.Failed = []result.Event{{At: 300 * time.Millisecond, Name: "replace"}}, 0
		first := 301 * time.Millisecond
		run.Backends = []result.Backend{{Name: "new", Choices: 1, First: &first}, {Name: "old", Choices: 1, Last: 290 * time.Millisecond}}
		if run.Labels[ContenderLabel] == "rules" {
			run.Backends[1].Last += time.Duration(50+10*i) * time.Millisecond
			run.TimeLine[2].Failed, run.TimeLine[5].Failed, run.Failed, run.LastFailed = 7, 2, 9, 510*time.Millisecond
		}
		run.SetDrill("replace", run.Events[0], "old", "new", 500*time.Microsecond)
	}
	return r
}

func TestDrillsAreATable(t *testing.T) {
	groups := result.Groups(drilled().Runs)
	table := drillTable(groups)
	want := [][]string{
		{"direct, services 1, churn 50", "replace", "0s (0s … 0s)", "1ms (1ms … 1ms)", "0 in 3 rounds", "0s (0s … 0s)", "447 in 3 rounds", "0 in 3 rounds"},
		{"rules, services 1, churn 50", "replace", "90ms (70ms … 110ms)", "1ms (1ms … 1ms)", "6 in 3 rounds", "210ms (210ms … 210ms)", "450 in 3 rounds", "0 in 3 rounds"},
	}
	if diff := cmp.Diff(want, table.Rows[:2]); diff != "" {
		t.Errorf("drills (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"direct, services 1, churn 50", "49.0", "98.0 %"}, churnTable(groups).Rows[0]); diff != "" {
		t.Errorf("churn (-want +got):\n%s", diff)
	}
	if plain := result.Groups(example().Runs); len(drillTable(plain).Rows)+len(churnTable(plain).Rows) > 0 {
		t.Error("a report without drills and churn has tables of them")
	}
}

func TestDrillsAreDrawnByContender(t *testing.T) {
	r := drilled()
	f := figureNamed(t, r, "drill-failures-crr-1-000-s-constant-churn-50-services-1")
	figureNamed(t, r, "drill-latency-crr-1-000-s-constant-churn-50-services-1")
	figureNamed(t, r, "services-p50-churn-50")
	svg, err := f.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"direct", "rules", "replace", "failed operations a second"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the figure says nothing of %q", want)
		}
	}
	for _, f := range Figures(r) {
		if strings.Contains(f.Name, "rate-line") {
			t.Errorf("%s is drawn besides", f.Name)
		}
	}
	failed, _ := overTime(r.Runs[1:2])
	if failed[2].Y != 70 || failed[3].Y != 0 {
		t.Errorf("failures are %v, want 70 a second from 0.2 s on for 0.1 s", failed)
	}
}

func TestFiguresDoWithoutTheNameThatAllShare(t *testing.T) {
	r := drilled()
	for i := range r.Runs {
		r.Runs[i].Name = "A long name"
	}
	f := figureNamed(t, r, "drill-failures-crr-1-000-s-constant-churn-50-services-1")
	if f.Title != "Failures around the event, crr, 1,000/s constant, churn 50, services 1" {
		t.Errorf("title is %q", f.Title)
	}
	for i := range r.Runs[:2] {
		r.Runs[i].Name = "Another"
	}
	figureNamed(t, r, "drill-failures-a-long-name-crr-1-000-s-constant-churn-50-services-1000")
}
