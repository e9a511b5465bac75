package result

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drill is a run of ten intervals of 100 ms with an event at 0.45 s.
func drill(old Backend, replacement *time.Duration) Run {
	const ms = time.Millisecond
	r := Run{Due: 100, Failed: 6, Broken: 2, LastFailed: 620 * ms, Interval: 100 * ms, Latency: NewHistogram(), Backends: []Backend{old}}
	if replacement != nil {
		r.Backends = append(r.Backends, Backend{Name: "new", Choices: 1, First: replacement})
	}
	for i := range 10 {
		r.TimeLine = append(r.TimeLine, Point{At: time.Duration(i) * 100 * ms})
		r.Latency.Add(time.Duration(i) * 10 * ms)
	}
	r.TimeLine[1].Failed, r.TimeLine[4].Failed, r.TimeLine[6].Failed = 1, 2, 3
	r.SetDrill("replace", Event{At: 450 * ms, Took: 3 * ms}, "old", "new", 65*ms)
	return r
}

func TestWhatCameOfADrill(t *testing.T) {
	first := 470 * time.Millisecond
	r := drill(Backend{Name: "old", Choices: 9, Last: 460 * time.Millisecond}, &first)
	want := "replace at 450ms, the last connection to the old backend 10ms after, the first to the new one 20ms after, 5 failed (the last was due 170ms after), 3 slower than 65ms, 2 broken"
	if diff := cmp.Diff(want, r.Drill.String()); diff != "" {
		t.Errorf("drill (-want +got):\n%s", diff)
	}
	before := drill(Backend{Name: "old", Choices: 9, Last: 440 * time.Millisecond}, nil)
	if last := before.Drill.LastOld; last == nil || *last != 0 {
		t.Errorf("the last connection to the old backend was %v after, want 0: it was before", last)
	}
	none := drill(Backend{Name: "other", Choices: 9}, nil)
	if none.Drill.LastOld != nil || none.Drill.FirstNew != nil {
		t.Errorf("%s, of backends that nobody reached", none.Drill)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"last_old_ns":10000000,"first_new_ns":20000000`) {
		t.Errorf("JSON has no drill, error %v", err)
	}
}

func TestMetricsOfDrills(t *testing.T) {
	first := 470 * time.Millisecond
	rounds := []Run{
		drill(Backend{Name: "old", Choices: 9, Last: 460 * time.Millisecond}, &first),
		drill(Backend{Name: "old", Choices: 9, Last: 470 * time.Millisecond}, nil), {},
	}
	got := make(map[string]string)
	for _, m := range DrillMetrics() {
		g := Group{Runs: rounds}
		if m.Total {
			g.Runs = []Run{g.Pooled()}
		}
		for _, v := range g.Values(m) {
			got[m.Name] += m.Text(v) + " "
		}
	}
	want := map[string]string{"last-old": "10ms 20ms ", "first-new": "20ms never ", "last-failed": "170ms 170ms ", "failures": "10 ", "slow": "6 ", "broken": "4 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if rounds[0].Drill.Failed != 5 {
		t.Error("pooling has changed a round")
	}
}

func TestDrillsAreCompared(t *testing.T) {
	first := 470 * time.Millisecond
	report := func(rounds int, last ...time.Duration) *Report {
		r := NewReport(Meta{})
		for _, l := range last[:rounds] {
			r.Runs = append(r.Runs, drill(Backend{Name: "old", Choices: 9, Last: l*time.Millisecond + 450*time.Millisecond}, &first))
		}
		return r
	}
	changes := func(rounds int) map[string]Change {
		all := make(map[string]Change)
		for _, c := range Compare(report(rounds, 10, 11, 12), report(rounds, 20, 22, 24)).Pairings[0].Changes {
			all[c.Metric] = c
		}
		return all
	}
	c := changes(3)
	if last := c["last-old"]; last.Ratio.Estimate != 2 || last.Verdict != Worse || c["first-new"].Verdict != NoEvidence {
		t.Errorf("compared as %+v, want twice as long until the old backend is left, and the same for the new one", c)
	}
	if _, counted := c["failures"]; counted {
		t.Error("counts of all rounds are compared by medians of rounds")
	}
	if _, ok := changes(2)["last-old"]; ok {
		t.Error("two samples are compared")
	}
}
