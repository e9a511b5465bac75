package monitoring_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate/headgate/tests/testenv"
)

// patience is how long anything may take on a busy machine. Entries of maps are counted every half a minute
// there, or a thousand times as long as that takes.
const patience = 3 * time.Minute

// prometheus is Debian's, which scrapes agents.
type prometheus struct {
	t       *testing.T
	address string
}

// scraped is how often agents are, and how long that may take: ten times as long as it does on a busy machine. An
// alert fires once it holds for holds, in place of the minutes of the file: one scrape that is late is no agent that is down.
const (
	scraped = 500 * time.Millisecond
	holds   = 3 * time.Second
)

// startPrometheus has one scrape agents.
func startPrometheus(t *testing.T, agents ...string) *prometheus {
	t.Helper()
	return startPrometheusThat(t, map[string]any{}, agents...)
}

// startPrometheusThat has it scrape with settings beside the usual ones.
func startPrometheusThat(t *testing.T, how map[string]any, agents ...string) *prometheus {
	t.Helper()
	program, dir := mustProgram(t, "prometheus"), t.TempDir()
	rules := mustAlerts(t)
	for _, g := range rules.Groups {
		for i := range g.Rules {
			g.Rules[i].For = holds.String()
		}
	}
	p := &prometheus{t, freeAddress(t)}
	job := map[string]any{"job_name": "kube-system/headgate", "static_configs": []any{map[string]any{"targets": agents}}}
	maps.Copy(job, how)
	config := map[string]any{
		"global":         map[string]any{"scrape_interval": scraped.String(), "scrape_timeout": scraped.String(), "evaluation_interval": scraped.String()},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": []any{job},
	}
	for name, content := range map[string]any{"rules.yaml": rules, "prometheus.yml": config} {
		text, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &testenv.LockedBuffer{}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says only that it was killed
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log)
		}
	})
	p.eventually("every agent is scraped twice", func() bool {
		up := p.query(`count_over_time(up[1h]) >= 2 and up == 1`)
		return len(up) == len(agents)
	})
	return p
}

// sample is what a query answers.
type sample struct {
	Metric map[string]string `json:"metric"`
}

// query asks for what is now; an error of the query fails the test.
func (p *prometheus) query(expr string) []sample {
	p.t.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil // it is starting
	}
	if answer.Status != "success" {
		p.t.Fatalf("query %s: %s", expr, answer.Error)
	}
	return answer.Data.Result
}

func (p *prometheus) get(path string, into any) error {
	response, err := http.Get("http://" + p.address + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	return nil
}

// alerts returns the names of those that pend or fire.
func (p *prometheus) alerts(state string) (names []string) {
	for _, s := range p.query(`count by (alertname) (ALERTS{alertstate="` + state + `"})`) {
		names = append(names, s.Metric["alertname"])
	}
	slices.Sort(names)
	return names
}

// isQuiet checks that nothing alerts anybody, after a time in which it would.
func (p *prometheus) isQuiet() {
	p.t.Helper()
	time.Sleep(holds + 4*scraped)
	if all := append(p.alerts("pending"), p.alerts("firing")...); len(all) > 0 {
		p.t.Errorf("nothing is wrong yet, and there are alerts %q", all)
	}
}

// fires waits for one alert, and checks that no other one ever fired but those that may come along.
func (p *prometheus) fires(alert string, along ...string) {
	p.t.Helper()
	p.eventually(alert+" fires", func() bool { return slices.Contains(p.alerts("firing"), alert) })
	for _, s := range p.query(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))`) {
		if name := s.Metric["alertname"]; name != alert && !slices.Contains(along, name) {
			p.t.Errorf("%s fired, too, beside %s", name, alert)
		}
	}
}

// ends waits until no alert fires any more.
func (p *prometheus) ends(alert string) {
	p.t.Helper()
	p.eventually(alert+" ends", func() bool { return len(p.alerts("firing")) == 0 })
}

func (p *prometheus) eventually(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if is() {
			return
		}
	}
	p.t.Fatalf("not within %v: %s; alerts pending %q, firing %q", patience, what, p.alerts("pending"), p.alerts("firing"))
}

// freeAddress returns one of loopback with a port that nobody has.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// choice is a query of Grafana for what a variable may be.
var choice = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// values returns what a variable may be.
func (p *prometheus) values(v variable) []string {
	p.t.Helper()
	text, _ := v.Query.(map[string]any)["query"].(string)
	m := choice.FindStringSubmatch(text)
	if m == nil {
		p.t.Fatalf("variable %s has the query %q", v.Name, text)
	}
	var answer struct{ Data []string }
	match := url.QueryEscape(inGrafana.Replace(m[1]))
	if err := p.get("/api/v1/label/"+m[2]+"/values?match[]="+match, &answer); err != nil {
		p.t.Fatal(err)
	}
	return answer.Data
}
