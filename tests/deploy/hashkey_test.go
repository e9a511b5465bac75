package deploy_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// cluster is where the chart looks for Secrets: those of kube-system by name.
type cluster map[string]*corev1.Secret

// GetClientFor is how the functions of templates ask.
func (c cluster) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return secrets{cluster: c}, true, nil
}

// secrets can be got, and nothing else.
type secrets struct {
	dynamic.NamespaceableResourceInterface
	cluster cluster
}

func (s secrets) Namespace(string) dynamic.ResourceInterface { return s }

func (s secrets) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	secret := s.cluster[name]
	if secret == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	return &unstructured.Unstructured{Object: object}, err
}

// mustUpgrade reads what helm makes of the chart in a cluster, beside the text of it.
func mustUpgrade(t *testing.T, c cluster, values string) (objects, []byte) {
	t.Helper()
	text, _, err := renderIn(c, values)
	if err != nil {
		t.Fatal(err)
	}
	return mustRead(t, text), text
}

func TestTheChartMakesAKeyOfHashesOnce(t *testing.T) {
	first, _ := mustUpgrade(t, cluster{}, asBase)
	made := mustGet[*corev1.Secret](t, first)
	if len(made.Data["key"]) < 32 || made.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("a key of %d bytes, annotations %v", len(made.Data["key"]), made.Annotations)
	}
	other, _ := mustUpgrade(t, cluster{}, asBase)
	if bytes.Equal(mustGet[*corev1.Secret](t, other).Data["key"], made.Data["key"]) {
		t.Error("two clusters have the same key")
	}
	again, text := mustUpgrade(t, cluster{made.Name: made}, asBase)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("an upgrade changes objects (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(mustGet[*appsv1.DaemonSet](t, first), mustGet[*appsv1.DaemonSet](t, other)); diff != "" {
		t.Errorf("the DaemonSet says something of the key:\n%s", diff)
	}
	if n := strings.Count(string(text), string(made.Data["key"])); n > 0 {
		t.Errorf("the key is there in clear %d times", n)
	}
}

func TestTheKeyOfHashesIsWhereTheAgentLooks(t *testing.T) {
	for values, want := range map[string]string{asBase: "headgate-hash-key", asBase + "\nhashKey: null": "headgate-hash-key", asBase + "\nhashKey: {existingSecret: mine}": "mine"} {
		all := mustRender(t, values)
		pod := mustGet[*appsv1.DaemonSet](t, all).Spec.Template.Spec
		var dir, secret string
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == "hash-key" {
				dir = m.MountPath
			}
		}
		for _, v := range pod.Volumes {
			if v.Name == "hash-key" && *v.Secret.DefaultMode == 0o400 {
				secret = v.Secret.SecretName
			}
		}
		flag := mustConfig(t, mustGet[*corev1.ConfigMap](t, all))["hash-key-file"]
		if diff := cmp.Diff([]any{want, dir + "/key"}, []any{secret, flag}); diff != "" {
			t.Errorf("secret and file (-want +got):\n%s", diff)
		}
		if _, made := all["Secret/headgate-hash-key"]; made != (want == "headgate-hash-key") {
			t.Errorf("with the Secret %s another one is made: %v", want, made)
		}
	}
}

// Who carries takes the line of the base into use, and makes the Secret that the base mounts.
func TestTheBaseHasThePathOfTheKeyAtHand(t *testing.T) {
	all := mustBuild(t, base)
	text := mustGet[*corev1.ConfigMap](t, all).Data["headgate.yaml"]
	flag := mustConfig(t, mustGet[*corev1.ConfigMap](t, mustRender(t, asBase)))["hash-key-file"]
	if !strings.Contains(text, "\n# hash-key-file: "+flag.(string)+"\n") {
		t.Errorf("not %v:\n%s", flag, text)
	}
}
