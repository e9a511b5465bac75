package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// monitoring has alerts and dashboards as files.
const monitoring = root + "/deploy/helm/headgate/monitoring"

const reachable = asBase + "\nmetricsBindAddress: 0.0.0.0:10249"

// rule is what of an alert the chart may change.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

type ruleGroups struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

// mustRules reads rules strictly.
func mustRules(t *testing.T, text []byte) ruleGroups {
	t.Helper()
	var g ruleGroups
	if err := yaml.UnmarshalStrict(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func mustFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// renderedRules returns the rules of the chart with values.
func renderedRules(t *testing.T, values string) ruleGroups {
	t.Helper()
	o, ok := mustRender(t, asBase+"\n"+values)["PrometheusRule/headgate"].(*unstructured.Unstructured)
	if !ok {
		t.Fatal("no PrometheusRule")
	}
	spec, err := yaml.Marshal(o.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return mustRules(t, spec)
}

func TestTheChartHasTheAlertsOfTheFile(t *testing.T) {
	want := mustRules(t, mustFile(t, monitoring+"/alerts.yaml"))
	if diff := cmp.Diff(want, renderedRules(t, "prometheusRule: {enabled: true}")); diff != "" {
		t.Errorf("rules (-file +chart):\n%s", diff)
	}
	got := renderedRules(t, `
prometheusRule:
  enabled: true
  runbookBase: https://git.example.com/headgate/
  alerts:
    HeadgateProblems: {for: 1h, labels: {severity: info, team: net}}
    HeadgateAgentDown: {enabled: false}
`)
	rules := &want.Groups[0].Rules
	*rules = (*rules)[1:]
	for i := range *rules {
		annotations := (*rules)[i].Annotations
		annotations["runbook_url"] = "https://git.example.com/headgate/" + annotations["runbook_url"]
		if r := &(*rules)[i]; r.Alert == "HeadgateProblems" {
			r.For, r.Labels = "1h", map[string]string{"severity": "info", "team": "net"}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changed rules (-want +chart):\n%s", diff)
	}
}

func TestTheChartHasTheDashboardsAsFiles(t *testing.T) {
	files, err := filepath.Glob(monitoring + "/dashboards/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("dashboards %v: %v", files, err)
	}
	all := mustRender(t, asBase+"\ndashboards: {enabled: true, labels: {found: by-this}, annotations: {grafana_folder: Headgate}}")
	for _, file := range files {
		name := filepath.Base(file)
		o, ok := all["ConfigMap/"+strings.TrimSuffix(name, ".json")+"-dashboard"].(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("no ConfigMap of %s", name)
		}
		if diff := cmp.Diff(string(mustFile(t, file)), o.Data[name]); diff != "" {
			t.Errorf("%s (-file +chart):\n%s", name, diff)
		}
		if o.Labels["found"] != "by-this" || o.Annotations["grafana_folder"] != "Headgate" {
			t.Errorf("%s has labels %v and annotations %v", name, o.Labels, o.Annotations)
		}
	}
}

func TestBothMonitorsScrapeAlike(t *testing.T) {
	const how = `{enabled: true, interval: 5s, relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: go_.*}]}`
	all := mustRender(t, reachable+"\nmetricsTLS: {secretName: certificate, tlsConfig: {serverName: headgate}}\npodMonitor: "+how+"\nserviceMonitor: "+how)
	endpoint := func(kind, list string) any {
		o, ok := all[kind+"/headgate"].(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("no %s", kind)
		}
		endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", list)
		if err != nil || len(endpoints) != 1 {
			t.Fatalf("%s has endpoints %v, %v", kind, endpoints, err)
		}
		return endpoints[0]
	}
	want := map[string]any{
		"port": "metrics", "interval": "5s", "scheme": "https", "tlsConfig": map[string]any{"serverName": "headgate"},
		"relabelings": []any{
			map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"},
			map[string]any{"action": "labeldrop", "regex": "pod"},
		},
		"metricRelabelings": []any{map[string]any{"action": "drop", "sourceLabels": []any{"__name__"}, "regex": "go_.*"}},
	}
	for kind, list := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"} {
		if diff := cmp.Diff(want, endpoint(kind, list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestTheServiceOfMetricsLeadsToTheAgents(t *testing.T) {
	all := mustRender(t, reachable+"\nmetricsService: {enabled: true, annotations: {prometheus.io/scrape: \"true\"}}")
	service := mustGet[*corev1.Service](t, all)
	template := mustGet[*appsv1.DaemonSet](t, all).Spec.Template
	for label, value := range service.Spec.Selector {
		if template.Labels[label] != value {
			t.Errorf("the agents have %s %q, the Service selects %q", label, template.Labels[label], value)
		}
	}
	ports := template.Spec.Containers[0].Ports
	if len(ports) != 1 || ports[0].Name != service.Spec.Ports[0].TargetPort.String() || ports[0].ContainerPort != 10249 || service.Spec.Ports[0].Port != 10249 {
		t.Errorf("ports %v of the agents, %v of the Service", ports, service.Spec.Ports)
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone || service.Annotations["prometheus.io/scrape"] != "true" {
		t.Errorf("Service %v with annotations %v", service.Spec, service.Annotations)
	}
}

func TestTheCertificateOfMetricsIsWhereTheAgentLooks(t *testing.T) {
	all := mustRender(t, asBase+"\nmetricsTLS: {secretName: certificate}")
	flags := mustConfig(t, mustGet[*corev1.ConfigMap](t, all))
	pod := mustGet[*appsv1.DaemonSet](t, all).Spec.Template.Spec
	var dir, secret string
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == "metrics-tls" {
			dir = m.MountPath
		}
	}
	for _, v := range pod.Volumes {
		if v.Name == "metrics-tls" {
			secret = v.Secret.SecretName
		}
	}
	want := []any{"certificate", dir + "/tls.crt", dir + "/tls.key"}
	if diff := cmp.Diff(want, []any{secret, flags["metrics-tls-cert-file"], flags["metrics-tls-key-file"]}); diff != "" {
		t.Errorf("secret and files (-want +got):\n%s", diff)
	}
}
