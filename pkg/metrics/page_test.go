package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

const page = "../../docs/metrics.md"

func TestThePageHasEveryMetric(t *testing.T) {
	table := "| metric | type | says |\n|---|---|---|\n"
	for _, f := range families(t) {
		labels := ""
		if names := labelsOf(f); len(names) > 0 {
			labels = "{" + strings.Join(names, ",") + "}"
		}
		table += fmt.Sprintf("| `%s%s` | %s | %s |\n", f.GetName(), labels, strings.ToLower(f.GetType().String()), f.GetHelp())
	}
	testenv.MustHave(t, page, "<!-- metrics: go test ./pkg/metrics -update -->\n", table, "<!-- end of metrics -->\n", *update)
}

// labels are what the labels of all metrics mean.
var labels = map[string]string{
	"backend":        "address, port and protocol of a backend, such as `10.244.0.1:8080/TCP`",
	"code":           "HTTP status; of requests to an API server `<error>` where none came",
	"device":         "name of a network device, empty for hooks that are of the cgroup or the kernel",
	"direction":      "`to` the backend or peer, or `from` it",
	"event":          "counter, see [Counters](#counters)",
	"go_version":     "version of Go that built the agent",
	"hook":           "program, see [Hooks](#hooks)",
	"host":           "host and port of an API server",
	"ip_family":      "`IPv4` or `IPv6`. One loop programs both, so that both have the same durations; programming durations are by the family of the changed endpoints",
	"map":            "BPF map, see [Maps](#maps)",
	"method":         "HTTP method",
	"namespace":      "namespace of the Service",
	"peer":           "address of another node that packets are carried to",
	"port":           "name of the Service port, empty where it has none",
	"reason":         "drop reason, see [Drop reasons](#drop-reasons), or of failures how a backend failed a connection, see [Failures](#failures)",
	"scope":          "what a problem makes unwell: " + listed([]string{lb.ScopeNode.String(), lb.ScopeObject.String(), lb.ScopeBackend.String()}) + ", an object being one of Kubernetes or a Service",
	"server":         "URL of an API server, as it was configured",
	"service":        "name of the Service",
	"traffic_policy": "`internal` for internalTrafficPolicy, `external` for externalTrafficPolicy",
	"verb":           "HTTP method",
	"version":        "version of the agent",
}

func listed(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }

func TestThePageSaysWhatEveryLabelMeans(t *testing.T) {
	used := map[string]bool{}
	for _, f := range families(t) {
		for _, l := range labelsOf(f) {
			used[l] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(labels))); diff != "" {
		t.Errorf("labels of metrics, and those that are explained here (-used +explained):\n%s", diff)
	}
	table := "| label | meaning |\n|---|---|\n"
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		table += fmt.Sprintf("| `%s` | %s |\n", l, labels[l])
	}
	testenv.MustHave(t, page, "<!-- labels: go test ./pkg/metrics -update -->\n", table, "<!-- end of labels -->\n", *update)
}

func TestMetricsAreNamedAsPrometheusAdvises(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, happened(), 200))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// Their names are kube-proxy's.
		if !strings.HasPrefix(p.Metric, "kubeproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// families returns our metrics of an agent to which everything has happened.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	all, err := happened().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return ours(f.GetName()+" ") == "" })
}

func labelsOf(f *dto.MetricFamily) (names []string) {
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	return names
}
