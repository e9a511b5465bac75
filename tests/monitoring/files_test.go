// Package monitoring_test tests alerts and dashboards: as files, by Debian's promtool, and,
// with make monitoring-test, by a Prometheus that scrapes real agents.
package monitoring_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root       = "../.."
	alertsFile = root + "/deploy/helm/headgate/monitoring/alerts.yaml"
)

// rule is an alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

func mustAlerts(t *testing.T) ruleFile {
	t.Helper()
	var f ruleFile
	if err := yaml.UnmarshalStrict(mustRead(t, alertsFile), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// dashboard is what Grafana reads, as far as it can be wrong.
type dashboard struct {
	UID, Title string
	Templating struct{ List []variable }
	Panels     []panel
}

// variable is one that the reader of a dashboard chooses.
type variable struct {
	Name  string
	Query any // a text, or an object with one
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Targets     []target
}

type target struct{ RefID, Expr string }

func mustDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(root + "/deploy/helm/headgate/monitoring/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	out := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal(mustRead(t, file), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = d
	}
	return out
}

func TestEveryPanelHasItsPlaceAndItsQueries(t *testing.T) {
	for file, d := range mustDashboards(t) {
		if d.UID+".json" != file || d.Title == "" {
			t.Errorf("%s has the uid %q and the title %q", file, d.UID, d.Title)
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: panel %q has the id %d of another one", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: panel %q is not alone at %d,%d: %q", file, p.Title, x, y, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
				t.Errorf("%s: panel %q lacks a query or a description", file, p.Title)
			}
		}
	}
}

// named is a metric that an expression may name.
var named = regexp.MustCompile(`\b(?:headgate|kube|kubeproxy|process|go|rest_client)_\w+`)

func TestAlertsAndDashboardsNameMetricsThatThereAre(t *testing.T) {
	there := map[string]bool{"kube_node_info": true, "process_resident_memory_bytes": true, "process_cpu_seconds_total": true}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)(?:\\{[\\w,]+\\})?` \\| (\\w+) \\|").FindAllStringSubmatch(string(mustRead(t, root+"/docs/metrics.md")), -1) {
		there[m[1]] = true
		if m[2] == "histogram" {
			there[m[1]+"_bucket"] = true
		}
	}
	for where, expr := range expressions(t) {
		names := named.FindAllString(expr, -1)
		if len(names) == 0 && !strings.HasPrefix(expr, "up{") {
			t.Errorf("%s: %s names no metric", where, expr)
		}
		for _, name := range names {
			if !there[name] {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
}

// A value that no label has would make a panel or an alert empty for ever.
func TestAlertsAndDashboardsNameLabelValuesThatThereAre(t *testing.T) {
	page := string(mustRead(t, root+"/docs/metrics.md"))
	known := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(page, -1)
	for where, expr := range expressions(t) {
		for _, m := range regexp.MustCompile(`\b(event|reason)=~?"([^"$]+)"`).FindAllStringSubmatch(expr, -1) {
			for _, word := range strings.Split(m[2], "|") {
				is := regexp.MustCompile("^" + word + "$")
				if !slices.ContainsFunc(known, func(k []string) bool { return is.MatchString(k[1]) }) {
					t.Errorf("%s: no %s is %s", where, m[1], word)
				}
			}
		}
	}
}

// Whoever looks for an event finds it in a picture.
func TestTheDashboardOfTheDatapathHasEveryEvent(t *testing.T) {
	_, page, _ := strings.Cut(string(mustRead(t, root+"/docs/metrics.md")), "<!-- counters:")
	page, _, found := strings.Cut(page, "<!-- end of counters -->")
	var shown []string
	for where, expr := range expressions(t) {
		if m := regexp.MustCompile(`\bevent=~?"([^"]+)"`).FindStringSubmatch(expr); m != nil && strings.HasPrefix(where, "headgate-datapath.json") {
			shown = append(shown, m[1])
		}
	}
	all := regexp.MustCompile("^(?:" + strings.Join(shown, "|") + ")$")
	events := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(page, -1)
	if !found || len(events) == 0 {
		t.Fatal("docs/metrics.md has no counters")
	}
	for _, e := range events {
		if !all.MatchString(e[1]) {
			t.Errorf("no panel has the event %s", e[1])
		}
	}
}

// expressions returns all of them, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range mustAlerts(t).Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r.Expr
		}
	}
	for file, d := range mustDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				out[fmt.Sprintf("%s, panel %q, %s", file, p.Title, q.RefID)] = q.Expr
			}
		}
	}
	return out
}

func TestEveryAlertIsExplained(t *testing.T) {
	page := string(mustRead(t, root+"/docs/monitoring.md"))
	var want, got []string
	for _, g := range mustAlerts(t).Groups {
		for _, r := range g.Rules {
			want = append(want, r.Alert)
			if want := "docs/monitoring.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s has the runbook_url %q, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s lacks for, severity, summary or description", r.Alert)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Headgate\w+)$`).FindAllStringSubmatch(page, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(want, got) {
		t.Errorf("docs/monitoring.md explains %q, there are %q", got, want)
	}
}
