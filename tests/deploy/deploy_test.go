package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// asBase are the values that say what the base says; all others are defaults.
const asBase = `apiServers: ["https://set-api-servers.invalid:6443"]`

func TestTheChartMeansWhatTheBaseMeans(t *testing.T) {
	for _, tc := range []struct{ name, values, dir string }{
		{"with default values", asBase, base},
		{"with all privileges", asBase + "\nprivileged: true", root + "/deploy/overlays/privileged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, got := plain(t, mustBuild(t, tc.dir)), plain(t, mustRender(t, tc.values))
			delete(got, "Secret/headgate-hash-key") // the user makes that of the base
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize and helm (-kustomize +helm):\n%s", diff)
			}
			if len(want) != 5 {
				t.Errorf("%d objects, want 5", len(want))
			}
		})
	}
}

// plain leaves out what the tools themselves add: labels of Helm, the hash of a
// configuration. A configuration is compared by its values.
func plain(tb testing.TB, all objects) objects {
	tb.Helper()
	out := objects{}
	for key, o := range all {
		meta := o.(metav1.Object)
		meta.SetLabels(ownLabels(meta.GetLabels()))
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			pod := &o.Spec.Template
			pod.Labels, pod.Annotations = ownLabels(pod.Labels), nil
			slices.SortFunc(pod.Spec.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
			for _, v := range pod.Spec.Volumes {
				if v.ConfigMap != nil {
					v.ConfigMap.Name, _, _ = strings.Cut(v.ConfigMap.Name, "-")
				}
				if v.Secret != nil {
					v.Secret.Optional = nil
				}
			}
		case *corev1.ConfigMap:
			o.Name, _, _ = strings.Cut(o.Name, "-")
			flags := mustConfig(tb, o)
			delete(flags, "hash-key-file") // so is the flag
			o.Data = map[string]string{"headgate.yaml": fmt.Sprint(flags)}
			key = "ConfigMap/" + o.Name
		}
		out[key] = o
	}
	return out
}

func ownLabels(all map[string]string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": all["app.kubernetes.io/name"]}
}

// mustConfig returns the flags that a ConfigMap sets.
func mustConfig(tb testing.TB, c *corev1.ConfigMap) map[string]any {
	tb.Helper()
	flags := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(c.Data["headgate.yaml"]), &flags); err != nil {
		tb.Fatal(err)
	}
	return flags
}

func TestTheAgentMayReadFourKindsAndWriteEvents(t *testing.T) {
	role := mustGet[*rbacv1.ClusterRole](t, mustBuild(t, base))
	got := map[string]string{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got[strings.Trim(group+"/"+resource, "/")] = strings.Join(rule.Verbs, " ")
			}
		}
	}
	want := map[string]string{
		"services":                        "list watch",
		"discovery.k8s.io/endpointslices": "list watch",
		"nodes":                           "get list watch",
		"networking.k8s.io/servicecidrs":  "list watch",
		"events.k8s.io/events":            "create patch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestTheConfigurationOnlySetsFlagsThatTheAgentHas(t *testing.T) {
	help := mustHelp(t, "headgate", "agent")
	if !strings.Contains(help, " --api-servers ") {
		t.Skip("the agent of this tree cannot watch the API: it has no --api-servers")
	}
	for name := range mustConfig(t, mustGet[*corev1.ConfigMap](t, mustBuild(t, base))) {
		if !strings.Contains(help, " --"+name+" ") {
			t.Errorf("headgate agent has no flag --%s", name)
		}
	}
}

// mustHelp returns what a command says of its flags. It is run, not imported:
// this module does not follow the product's dependencies.
func mustHelp(tb testing.TB, program string, command ...string) string {
	tb.Helper()
	all := "--help"
	if program == "headgate" {
		all = "--help=all" // those of kube-proxy, too
	}
	cmd := exec.Command("go", slices.Concat([]string{"run", "./cmd/" + program}, command, []string{all})...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v %s: %v\n%s", program, command, all, err, out)
	}
	return string(out)
}

func TestCleanupRunsOnEveryNodeAndTouchesNothingElse(t *testing.T) {
	agent := mustGet[*appsv1.DaemonSet](t, mustBuild(t, base)).Spec.Template.Spec
	all := mustBuild(t, root+"/deploy/cleanup")
	cleanup := mustGet[*appsv1.DaemonSet](t, all).Spec.Template.Spec
	if len(all) != 1 || *cleanup.AutomountServiceAccountToken {
		t.Error("cleanup needs no rights at the API server")
	}
	type where struct {
		Selector    map[string]string
		Tolerations []corev1.Toleration
		Image       string
	}
	if diff := cmp.Diff(where{agent.NodeSelector, agent.Tolerations, agent.Containers[0].Image},
		where{cleanup.NodeSelector, cleanup.Tolerations, cleanup.InitContainers[0].Image}); diff != "" {
		t.Errorf("nodes and image (-agent +cleanup):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cleanup"}, cleanup.InitContainers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// The Job finds the servers, which answer what the Service has, and neither may
// do more than a namespace with restricted pods allows.
func TestTheBenchJobReachesItsServers(t *testing.T) {
	all := mustBuild(t, root+"/deploy/bench")
	service, servers := mustGet[*corev1.Service](t, all), mustGet[*appsv1.Deployment](t, all)
	client := mustGet[*batchv1.Job](t, all)
	pod := servers.Spec.Template
	if diff := cmp.Diff(service.Spec.Selector, pod.Labels); diff != "" {
		t.Errorf("the Service selects other pods (-selector +labels):\n%s", diff)
	}
	for _, want := range []string{fmt.Sprintf("--target=%s:%d", service.Name, service.Spec.Ports[0].Port), "--allow-outside"} {
		if !slices.Contains(client.Spec.Template.Spec.Containers[0].Args, want) {
			t.Errorf("the client's arguments have no %s: %v", want, client.Spec.Template.Spec.Containers[0].Args)
		}
	}
	for _, p := range []corev1.PodSpec{pod.Spec, client.Spec.Template.Spec} {
		c := p.Containers[0]
		if c.Image != "headgate-bench:unreleased" || *p.AutomountServiceAccountToken || !*p.SecurityContext.RunAsNonRoot ||
			*c.SecurityContext.AllowPrivilegeEscalation || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL") {
			t.Errorf("%s has another image than the traffic generator's, or more rights than it needs", c.Name)
		}
		help := mustHelp(t, "headgate-bench", c.Args[0])
		for _, arg := range c.Args[1:] {
			flag, _, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(flag, "--") && !strings.Contains(help, " "+flag+" ") {
				t.Errorf("headgate-bench %s has no flag %s", c.Args[0], flag)
			}
		}
	}
}

func TestAnOverlayOfOnesOwnSaysWhereTheAPIServerIs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range mustGuide(t, dir) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := mustBuild(t, dir)
	config, ds := mustGet[*corev1.ConfigMap](t, all), mustGet[*appsv1.DaemonSet](t, all)
	got := []any{mustConfig(t, config)["api-servers"], ds.Spec.Template.Spec.Volumes[0].ConfigMap.Name, ds.Spec.Template.Spec.Containers[0].Image}
	want := []any{"https://192.0.2.1:6443,https://192.0.2.2:6443", config.Name, "registry.example.org/headgate:TAG"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses, configuration, image (-want +got):\n%s", diff)
	}
}

// mustGuide returns the files of an overlay that the guide shows, as they are in
// a directory if the base is that of this repository. The first line of each
// says its name.
func mustGuide(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	guide, err := os.ReadFile(root + "/docs/install.md")
	if err != nil {
		tb.Fatal(err)
	}
	here, err := filepath.Abs(base)
	if err != nil {
		tb.Fatal(err)
	}
	if here, err = filepath.Rel(dir, here); err != nil {
		tb.Fatal(err)
	}
	files := map[string]string{}
	for _, block := range strings.Split(string(guide), "```yaml\n# ")[1:] {
		text, _, _ := strings.Cut(block, "```")
		name := text[:strings.IndexAny(text, ":\n")]
		files[name] = strings.Replace("# "+text, "github.com/headgate/headgate/deploy/base", here, 1)
	}
	if files["kustomization.yaml"] == "" || len(files) != 2 {
		tb.Fatalf("the guide has the files %v", slices.Sorted(maps.Keys(files)))
	}
	return files
}
