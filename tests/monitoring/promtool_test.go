package monitoring_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// programsVar names the directory of prometheus and promtool, as tests/tools/prometheus
// prints it.
const programsVar = "PROMETHEUS"

// mustProgram returns prometheus or promtool.
func mustProgram(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(programsVar)
	if dir == "" {
		if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") != "" {
			t.Fatalf("%s is not set: make test sets it", programsVar)
		}
		t.Skipf("needs %s=$(tests/tools/prometheus)", programsVar)
	}
	return filepath.Join(dir, name)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(mustProgram(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheAlerts(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", alertsFile)
}

func TestEachAlertFiresForItsFaultAlone(t *testing.T) {
	promtool(t, "test", "rules", "alerts_test.yaml")
}

func TestPromtoolAcceptsEveryQueryOfTheDashboards(t *testing.T) {
	var group ruleGroup
	for where, expr := range expressions(t) {
		if strings.Contains(where, "panel") {
			group.Rules = append(group.Rules, rule{Alert: fmt.Sprintf("%s %d", where, len(group.Rules)), Expr: inGrafana.Replace(expr)})
		}
	}
	group.Name = "queries"
	text, err := yaml.Marshal(ruleFile{[]ruleGroup{group}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// inGrafana puts values in place of variables, as Grafana does.
var inGrafana = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$namespace", ".*", "$service", ".*")
