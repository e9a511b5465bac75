package netns_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// localYAML is a Service for clients outside that only backends on the node serve.
func localYAML(name, clusterIP string, health int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: %d, clusterIP: %q, clusterIPs: [%q], ports: [{name: main, port: 80, protocol: TCP}]}
---
`, name, health, clusterIP, clusterIP)
}

// Health-check NodePorts of a Service with a backend on the node, and of one without.
const checkHere, checkElsewhere = 32100, 32101

// The API server of the agent that starts says nothing, so it never has a picture to bring into
// the kernel: whatever it answers comes before that.
func TestAStartingAgentAnswersForTheProgramsOfTheOneBefore(t *testing.T) {
	testenv.Need(t)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": localYAML("web", "10.96.0.1", checkHere) + sliceYAML("web", b) +
		"---\n" + localYAML("shop", "10.96.0.2", checkElsewhere)})
	a.Flags = []string{"--healthz-bind-address", healthzAddress, "--state-dir", t.TempDir()}
	for _, tc := range []struct {
		name   string
		before func(t *testing.T)
		want   string // codes of /healthz and of both NodePorts, 0 for no answer
	}{
		{"programs are in force", func(*testing.T) {}, "200 200 503"},
		{"nobody has followed changes for two minutes", func(t *testing.T) {
			if err := datapath.MarkAlive(a.Root, time.Now().Add(-2*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}, "503 503 503"},
		{"a program is out of force", func(t *testing.T) { detachPinned(t, a.Root, "connect4") }, "503 0 0"},
		{"no program is in force", func(t *testing.T) {
			if err := datapath.Cleanup(a.Root); err != nil {
				t.Fatal(err)
			}
		}, "503 0 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a.Start()
			eventually(t, "the first agent answers", func() bool { return answers() == "200 200 503" })
			a.Kill()
			tc.before(t)
			mustStartUnheard(t, a)
			eventually(t, "the next agent answers "+tc.want, func() bool { return answers() == tc.want })
			if out, err := exec.Command(a.Binary, append([]string{"ready"}, a.Flags[2:]...)...).CombinedOutput(); err == nil {
				t.Errorf("the next agent says that it is ready: %s", out)
			}
		})
	}
}

func TestWhoOnlyInitializesFollowsNoChanges(t *testing.T) {
	a, _, _ := mustWeb(t)
	a.Start()
	a.Kill()
	since := time.Now().Add(-2 * time.Minute).Truncate(time.Second)
	if err := datapath.MarkAlive(a.Root, since); err != nil {
		t.Fatal(err)
	}
	before := programsInForce(t, a.Root)
	out, err := exec.Command(a.Binary, "agent", "--init-only", "--manifests", a.Dir, "--node-name", "node-a", "--cgroup", a.Cgroup,
		"--bpf-root", a.Root, "--socket-entries", fmt.Sprint(2*a.SocketEntries)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if cmp.Equal(before, programsInForce(t, a.Root)) {
		t.Error("no program is another one")
	}
	if got, err := datapath.LastAlive(a.Root); err != nil || !got.Equal(since) {
		t.Errorf("changes were followed until %v, %v; want %v", got, err, since)
	}
}

// answers returns the codes on all ports.
func answers() string {
	codes := []string{}
	for _, url := range []string{"http://" + healthzAddress + "/healthz", fmt.Sprintf("http://127.0.0.1:%d", checkHere), fmt.Sprintf("http://127.0.0.1:%d", checkElsewhere)} {
		code := 0
		if answer, err := http.Get(url); err == nil {
			answer.Body.Close()
			code = answer.StatusCode
		}
		codes = append(codes, fmt.Sprint(code))
	}
	return strings.Join(codes, " ")
}

// mustStartUnheard starts an agent in place of another, with an API server that takes
// connections and says nothing, until the test ends.
func mustStartUnheard(t *testing.T, a *testenv.Agent) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://%s"}}], users: [{name: u, user: {}}]}`, silent.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(a.Binary, append([]string{"agent", "--kubeconfig", config, "--node-name", "node-a", "--cgroup", a.Cgroup, "--bpf-root", a.Root,
		"--socket-entries", fmt.Sprint(a.SocketEntries), "--metrics-bind-address", "", "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"}, a.Flags...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = a.Log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says only that it was killed
	})
}
