package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, values, says string }{
		{"no API server", "", "say where the API server is reached"},
		{"an API server without a scheme", `apiServers: ["192.0.2.1:6443"]`, "apiServers"},
		{"an API server with a path", `apiServers: ["https://192.0.2.1:6443/api"]`, "apiServers"},
		{"API servers as one string", `apiServers: https://192.0.2.1:6443`, "apiServers"},
		{"a misspelt value", asBase + "\ntoleration: []", "toleration"},
		{"a misspelt value further down", asBase + "\nimage: {tags: x}", "tags"},
		{"a flag that the agent does not have", asBase + "\nconfig: {max-slot: 1}", "max-slot"},
		{"kube-proxy's word for other flags", asBase + "\nconfig: {proxy-mode: nftables}", "proxy-mode"},
		{"a duration without a unit", asBase + "\nconfig: {conntrack-udp-timeout: 30}", "conntrack-udp-timeout"},
		{"a list in place of a string", asBase + "\nconfig: {nodeport-addresses: [192.0.2.0/24]}", "nodeport-addresses"},
		{"a number below zero", asBase + "\nconfig: {max-slots: -1}", "max-slots"},
		{"a file that the container does not have", asBase + "\nconfig: {hash-key-file: /etc/key}", "hash-key-file"},
		{"a number past its bounds", asBase + "\nconfig: {eject-after: 256}", "eject-after"},
		{"an algorithm that is none", asBase + "\nconfig: {algorithm: best}", "algorithm"},
		{"a number that is none", asBase + "\nconfig: {socket-entries: many}", "socket-entries"},
		{"a log level that is none", asBase + "\nlog: {level: verbose}", "level"},
		{"an address without a port", asBase + "\nhealthzBindAddress: 0.0.0.0", "healthzBindAddress"},
		{"a short digest", asBase + "\nimage: {digest: sha256:abc}", "digest"},
		{"two agents on a node", asBase + "\nupdateStrategy: {rollingUpdate: {maxSurge: 1}}", "maxSurge"},
		{"a yes that is a string", asBase + "\nprivileged: \"yes\"", "privileged"},
		{"metrics that nobody can reach", asBase + "\npodMonitor: {enabled: true}", "Prometheus cannot reach"},
		{"an alert that there is not", asBase + "\nprometheusRule: {enabled: true, alerts: {HeadgateProblem: {for: 1h}}}", "there is no alert HeadgateProblem"},
		{"a duration of an alert that is none", asBase + "\nprometheusRule: {alerts: {HeadgateProblems: {for: soon}}}", "for"},
		{"a relabeling that is none", asBase + "\nserviceMonitor: {relabelings: [node]}", "relabelings"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := render(tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one with %q", err, tc.says)
			}
		})
	}
}

// The comment of values.yaml is where people look for what can be set.
func TestEveryFlagThatValuesNameByExampleIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/headgate/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?m)^#   ([a-z-]+: \S+)$`).FindAllStringSubmatch(string(text), -1)
	if len(examples) < 5 {
		t.Fatalf("only %d examples are found in values.yaml: %q", len(examples), examples)
	}
	for _, e := range examples {
		config := mustGet[*corev1.ConfigMap](t, mustRender(t, asBase+"\nconfig: {"+e[1]+"}")).Data["headgate.yaml"]
		flag, _, _ := strings.Cut(e[1], ":")
		if !strings.Contains(config, "\n"+flag+": ") {
			t.Errorf("%s is not in headgate.yaml:\n%s", e[1], config)
		}
	}
}

func TestValuesBecomeFlags(t *testing.T) {
	got := mustGet[*corev1.ConfigMap](t, mustRender(t, `
apiServers: ["https://192.0.2.1:6443", "https://[2001:db8::1]:6443"]
healthzBindAddress: "[::]:10256"
metricsBindAddress: ""
log: {level: debug}
config: {socket-entries: 2097152, nodeport-loopback: false, nodeport-addresses: "192.0.2.0/24,2001:db8::/64"}
`)).Data["headgate.yaml"]
	want := `api-servers: "https://192.0.2.1:6443,https://[2001:db8::1]:6443"
healthz-bind-address: "[::]:10256"
metrics-bind-address: ""
hash-key-file: /etc/headgate-key/key
log-level: debug
log-format: json
nodeport-addresses: "192.0.2.0/24,2001:db8::/64"
nodeport-loopback: false
socket-entries: 2097152
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headgate.yaml (-want +got):\n%s", diff)
	}
}

func TestAChangeOfTheConfigurationRestartsTheAgents(t *testing.T) {
	checksum := func(values string) string {
		return mustGet[*appsv1.DaemonSet](t, mustRender(t, values)).Spec.Template.Annotations["checksum/config"]
	}
	if checksum(asBase) == checksum(asBase+"\nlog: {level: debug}") {
		t.Error("the same checksum with another level")
	}
	if checksum(asBase) != checksum(asBase+"\npodLabels: {a: b}") {
		t.Error("another checksum with the same configuration")
	}
}

func TestAllValuesRender(t *testing.T) {
	all := mustRender(t, asBase+`
image: {repository: registry.example.org/headgate, digest: "sha256:`+strings.Repeat("0", 64)+`", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
healthzBindAddress: 0.0.0.0:20256
metricsBindAddress: 0.0.0.0:20249
resources: {limits: {memory: 1Gi}}
priorityClassName: system-cluster-critical
updateStrategy: {type: OnDelete, rollingUpdate: null}
nodeSelector: {pool: one}
tolerations: [{key: only, operator: Exists}]
affinity: {nodeAffinity: {}}
podAnnotations: {one: "1"}
podLabels: {two: "2"}
podMonitor: {enabled: true, labels: {release: prometheus}, interval: 5s}
`)
	ds := mustGet[*appsv1.DaemonSet](t, all)
	pod, agent := ds.Spec.Template.Spec, ds.Spec.Template.Spec.Containers[0]
	got := []any{
		agent.Image, string(agent.ImagePullPolicy), pod.ImagePullSecrets[0].Name,
		agent.LivenessProbe.HTTPGet.Port.IntValue(), strings.Join(agent.ReadinessProbe.Exec.Command, " "), int(agent.Ports[0].ContainerPort),
		agent.Resources.Limits.Memory().String(), pod.PriorityClassName, string(ds.Spec.UpdateStrategy.Type),
		pod.NodeSelector["pool"], pod.Tolerations[0].Key, pod.Affinity.NodeAffinity != nil,
		ds.Spec.Template.Annotations["one"], ds.Spec.Template.Labels["two"],
	}
	want := []any{
		"registry.example.org/headgate@sha256:" + strings.Repeat("0", 64), "Always", "registry",
		20256, "/headgate ready", 20249, "1Gi", "system-cluster-critical", "OnDelete", "one", "only", true, "1", "2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	monitor := mustGet[*unstructured.Unstructured](t, all)
	if monitor.GetKind() != "PodMonitor" || monitor.GetLabels()["release"] != "prometheus" {
		t.Errorf("monitor %s with labels %v", monitor.GetKind(), monitor.GetLabels())
	}
}

func TestNotesSayWhereThingsAre(t *testing.T) {
	_, notes, err := render(asBase)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(notes, "-n kube-system rollout status daemonset headgate") {
		t.Errorf("notes:\n%s", notes)
	}
}

// What a check looks at is what the agent would meet: the same image, rights and files.
func TestACheckRunsAsTheAgentWouldBeforeIt(t *testing.T) {
	if pod := mustGet[*appsv1.DaemonSet](t, mustRender(t, asBase)).Spec.Template.Spec; len(pod.InitContainers) > 0 {
		t.Errorf("without a word of it there is the init container %s", pod.InitContainers[0].Name)
	}
	for _, more := range []string{"", "\nprivileged: false", "\nimage: {pullPolicy: Always}"} {
		pod := mustGet[*appsv1.DaemonSet](t, mustRender(t, asBase+"\ncheck: {enabled: true}"+more)).Spec.Template.Spec
		if len(pod.InitContainers) != 1 {
			t.Fatalf("%d init containers", len(pod.InitContainers))
		}
		check, agent := pod.InitContainers[0], pod.Containers[0]
		want := agent
		want.Name, want.Args = "check", append([]string{"check"}, agent.Args[1:]...)
		want.Ports, want.LivenessProbe, want.ReadinessProbe, want.Resources = nil, nil, nil, corev1.ResourceRequirements{}
		if diff := cmp.Diff(want, check); diff != "" {
			t.Errorf("with %q (-as the agent +check):\n%s", more, diff)
		}
	}
	help := mustHelp(t, "headgate", "check")
	for _, flag := range []string{"--config", "--cgroup"} {
		if !strings.Contains(help, " "+flag+" ") {
			t.Errorf("headgate check has no flag %s", flag)
		}
	}
}
