package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/controlplane"
	"github.com/headgate/headgate/tests/testenv"
)

// finding is one of headgate check.
type finding struct {
	Name, Level, Found, Remedy string
}

// findings returns what headgate check finds of the first node, and of the cluster by a kubeconfig.
func (s *stage) findings(kubeconfig string) (all []finding) {
	s.tb.Helper()
	cmd := exec.Command("/proc/self/exe", "--bpf-root", s.root, "check", "-j", "--kubeconfig", kubeconfig,
		"--node-name", thisNode, "--cgroup", testenv.Cgroup(s.tb))
	cmd.Env = append(os.Environ(), asHeadgate+"=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := s.world.node().Start(cmd); err != nil {
		s.tb.Fatal(err)
	}
	ended := cmd.Wait()
	var report struct{ Findings []finding }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		s.tb.Fatalf("it ended with %v and said %s%s", ended, out.Bytes(), said.Bytes())
	}
	return report.Findings
}

// of returns the findings of some names, a line each.
func of(all []finding, names ...string) (lines []string) {
	for _, f := range all {
		for _, name := range names {
			if f.Name == name {
				lines = append(lines, f.Level+" "+f.Name+": "+f.Found)
			}
		}
	}
	return lines
}

func TestAClusterIsCheckedBeforeAnythingIsInstalled(t *testing.T) {
	s := mustStage(t)
	s.service("web", nil)
	all := s.findings(s.world.cluster.ProxyKubeconfig())
	names := []string{"api-server", "rights", "rights-missing", "rights-fewer", "cluster-ips", "kube-proxy", "not-known"}
	want := "ok kube-proxy: none runs here\nok api-server: " + controlplane.ServerURL + " answers: Kubernetes " + controlplane.Version +
		"\nok rights: the API server grants all 10\nok cluster-ips: none of 3 is an address of this node"
	if got := strings.Join(of(all, names...), "\n"); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	for _, f := range all {
		if f.Level == "failure" {
			t.Errorf("a failure: %s: %s; %s", f.Name, f.Found, f.Remedy)
		}
	}
}

// Each right that is missing is named: first all of them, then some.
func TestRightsThatTheAPIServerDoesNotGrantAreNamed(t *testing.T) {
	s := mustStage(t)
	type object = map[string]any
	const rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
	role := func(method, path string, rules ...object) {
		t.Helper()
		if err := s.world.cluster.Client.Do(t.Context(), method, path, "application/json", object{"metadata": object{"name": "guest"}, "rules": rules}, nil); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(group, resource string, verbs ...string) object {
		return object{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": verbs}
	}
	role(http.MethodPost, rbac+"s")
	binding := object{"metadata": object{"name": "guest"}, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "guest"},
		"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": controlplane.Guest}}}
	if err := s.world.cluster.Client.Do(t.Context(), http.MethodPost, rbac+"bindings", "application/json", binding, nil); err != nil {
		t.Fatal(err)
	}
	want := func(lines ...string) {
		t.Helper()
		s.eventually("the findings are "+strings.Join(lines, "; "), func() error {
			got := of(s.findings(s.world.cluster.GuestKubeconfig()), "rights", "rights-missing", "rights-fewer", "not-known")
			if diff := cmp.Diff(lines, got); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	const grants = "the API server does not grant: "
	want("failure rights-missing: "+grants+"list services, watch services, list endpointslices.discovery.k8s.io, watch endpointslices.discovery.k8s.io",
		"warning rights-fewer: "+grants+"list nodes, watch nodes, list servicecidrs.networking.k8s.io, watch servicecidrs.networking.k8s.io, create events.events.k8s.io, patch events.events.k8s.io")
	services, nodes := rule("", "services", "list", "watch"), rule("", "nodes", "list", "watch")
	cidrs, events := rule("networking.k8s.io", "servicecidrs", "list", "watch"), rule("events.k8s.io", "events", "create")
	role(http.MethodPut, rbac+"s/guest", services, nodes, cidrs, events, rule("discovery.k8s.io", "endpointslices", "list"))
	want("failure rights-missing: "+grants+"watch endpointslices.discovery.k8s.io", "warning rights-fewer: "+grants+"patch events.events.k8s.io")
	role(http.MethodPut, rbac+"s/guest", services, nodes, cidrs, rule("events.k8s.io", "events", "create", "patch"), rule("discovery.k8s.io", "endpointslices", "list", "watch"))
	want("ok rights: the API server grants all 10")
}
