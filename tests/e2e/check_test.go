package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/tests/controlplane"
	"github.com/headgate/headgate/tests/testenv"
)

// finding is one of headgate check.
type finding struct {
	Name, Level, Found, Remedy string
}

// findings returns what headgate check finds of the first node and the cluster.
func (s *stage) findings() (all []finding) {
	s.tb.Helper()
	cmd := exec.Command("/proc/self/exe", "--bpf-root", s.root, "check", "-j", "--kubeconfig", s.world.cluster.ProxyKubeconfig(),
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
	all := s.findings()
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
