package kubectl

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// fakeKubectl answers as a cluster with agents on two nodes does, and says what it runs in which
// pod. A pod that ends is on node-b beside the one that has taken over.
const fakeKubectl = `#!/bin/sh
case "$*" in
*"get pod "*nothing*) echo 'E1130 memcache.go: no connection' >&2; echo 'Error from server (NotFound): pods "nothing" not found' >&2; exit 1 ;;
*"get pod "*waiting*) ;;
*"get pod "*) printf node-b ;;
*empty*"get daemonsets"*) ;;
*pools*"get daemonsets"*) printf 'kube-system,headgate,u2,headgate,true\nkube-system,headgate-arm,u1,headgate,true\n' ;;
*two*"get daemonsets"*) printf 'kube-system,headgate,u1,headgate,true\nevil,headgate,u2,headgate,true\n' ;;
*"get daemonsets"*) printf 'evil,mine,u3,headgate,\nkube-system,headgate,u1,headgate,true\nevil,other,u4,default,true\n' ;;
*evil*"get pods"*) printf 'node-a,evil,a,Running,\nnode-a,kube-system,b,Running,u9\nnode-a,evil,c,Running,u1\nnode-a,kube-system,headgate-a,Running,u1\n' ;;
*"get pods"*) printf 'node-b,kube-system,headgate-b0,Succeeded,u1\nnode-a,kube-system,headgate-a,Running,u1\nnode-b,kube-system,headgate-b1,Running,u1\n,kube-system,headgate-c,Pending,u1\n' ;;
*" exec "*|"exec "*) echo "$*"; case "$*" in *"headgate-b1 -- /headgate status"*) exit 3 ;; esac ;;
esac
`

func TestItRunsInTheAgentOfTheNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const execute = "exec --namespace=kube-system --container=agent "
	for _, c := range []struct {
		args     string
		out, err string
		code     int
	}{
		{"--node node-a flow list -n default", execute + "headgate-a -- /headgate flow list -n default\n", "", 0},
		{"--node=node-b status", execute + "headgate-b1 -- /headgate status\n", "", 3},
		{"--of default/shell status -j", execute + "headgate-b1 -- /headgate status -j\n", "", 3},
		{"--of shell top", execute + "headgate-b1 -- /headgate top\n", "", 0},
		{"--context c --node node-a diff", "--context=c " + execute + "headgate-a -- /headgate diff\n", "", 0},
		{"--all-nodes status", "== node-a\n" + execute + "headgate-a -- /headgate status\n== node-b\n" + execute + "headgate-b1 -- /headgate status\n", "", 3},
		{"", usage, "", 0},
		{"--help", usage, "", 0},
		{"--node node-z status", "", `no agent is on node "node-z"; agents are on node-a, node-b`, 1},
		{"status", "", "which node? Write --node NAME, --of POD or --all-nodes; agents are on node-a, node-b", 1},
		{"--of nothing status", "", `kubectl get: Error from server (NotFound): pods "nothing" not found`, 1},
		{"--of waiting status", "", "pod default/waiting is on no node yet", 1},
		{"--context empty status", "", "there is no DaemonSet with the label app.kubernetes.io/name=headgate, the service account headgate and the node's network: is Headgate installed in this cluster?", 1},
		{"--namespace evil status", "", "--namespace evil has no DaemonSet with the label app.kubernetes.io/name=headgate, the service account headgate and the node's network", 1},
		{"--context two status", "", "which agents? Write --namespace NAME; these look like theirs: kube-system/headgate, evil/headgate", 1},
		{"--context two --namespace kube-system --node node-a diff", "--context=two " + execute + "headgate-a -- /headgate diff\n", "", 0},
		{"--context pools --node node-a diff", "--context=pools " + execute + "headgate-a -- /headgate diff\n", "", 0},
		{"--context evil diff", "--context=evil " + execute + "headgate-a -- /headgate diff\n", "left out, since they have the label app.kubernetes.io/name=headgate and are not of the DaemonSet kube-system/headgate: evil/a, kube-system/b, evil/c", 0},
		{"--nodes node-a status", "", "unknown flag --nodes: flags of headgate stand behind its command; kubectl headgate --help lists those before it", 1},
		{"-n kube-system status", "", "unknown flag -n: flags of headgate stand behind its command; kubectl headgate --help lists those before it", 1},
		{"--node", "", "--node: a value is missing", 1},
		{"--node a --all-nodes status", "", "--node, --of and --all-nodes: write one of them", 1},
	} {
		var out, said bytes.Buffer
		code := Run(t.Context(), strings.Fields(c.args), nil, &out, &said)
		if c.err != "" {
			c.err = "kubectl headgate: " + c.err + "\n"
		}
		if diff := cmp.Diff([]any{c.code, c.out, c.err}, []any{code, out.String(), said.String()}); diff != "" {
			t.Errorf("kubectl headgate %s (-want +got):\n%s", c.args, diff)
		}
	}
}

func TestFieldsAreThoseOfTheObjects(t *testing.T) {
	controller := true
	set, pod := appsv1.DaemonSet{}, corev1.Pod{}
	set.Namespace, set.Name, set.UID = "kube-system", "headgate", "u1"
	set.Spec.Template.Spec.ServiceAccountName, set.Spec.Template.Spec.HostNetwork = "headgate", true
	pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase = "kube-system", "headgate-a", "node-a", corev1.PodRunning
	pod.OwnerReferences = []metav1.OwnerReference{{UID: "u0"}, {UID: "u1", Controller: &controller}}
	for _, c := range []struct {
		fields string
		list   any
		want   string
	}{
		{setFields, appsv1.DaemonSetList{Items: []appsv1.DaemonSet{set, {}}}, "kube-system,headgate,u1,headgate,true\n,,,,\n"},
		{podFields, corev1.PodList{Items: []corev1.Pod{pod, {}}}, "node-a,kube-system,headgate-a,Running,u1\n,,,,\n"},
	} {
		body, err := json.Marshal(c.list)
		if err != nil {
			t.Fatal(err)
		}
		var object any
		if err := json.Unmarshal(body, &object); err != nil {
			t.Fatal(err)
		}
		path, out := jsonpath.New("fields").AllowMissingKeys(true), bytes.Buffer{}
		if err := path.Parse(eachOf(c.fields)); err != nil {
			t.Fatal(err)
		}
		if err := path.Execute(&out, object); err != nil || out.String() != c.want {
			t.Errorf("%s is %q, want %q (%v)", c.fields, out.String(), c.want, err)
		}
	}
}

func TestTheContainerIsThatOfTheAgent(t *testing.T) {
	body, err := os.ReadFile("../../deploy/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var agents appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(body, &agents); err != nil {
		t.Fatal(err)
	}
	if got := agents.Spec.Template.Spec.Containers[0].Name; got != container {
		t.Errorf("the container of the agent is %s, and commands run in %s", got, container)
	}
}

func TestWithoutKubectlItSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out, said bytes.Buffer
	if code := Run(t.Context(), []string{"status"}, nil, &out, &said); code != 1 || !strings.Contains(said.String(), `"kubectl": executable file not found`) {
		t.Errorf("%d, %s", code, said.String())
	}
}
