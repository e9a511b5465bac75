package netns_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

// agentBinary builds headgate once, as make build does.
var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "headgate-netns-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", dir, "github.com/headgate/headgate/cmd/headgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	builtIn = dir
	return filepath.Join(dir, "headgate"), nil
})

// builtIn is what agentBinary leaves for TestMain to remove.
var builtIn string

func removeAgentBinary() {
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
}

// agent is the real program, which can be killed and started again.
type agent struct {
	tb     testing.TB
	binary string
	dir    string // of manifests
	root   string // of pins
	cgroup string
	cmd    *exec.Cmd
	log    *lockedBuffer
	// promises is a knob, a change of which makes the next start a replacement.
	promises int
	flags    []string      // beside those that every agent needs
	ready    chan struct{} // closed when everything the agent read is in force
}

// mustAgent prepares an agent with manifests, by file name, but does not start
// it.
func mustAgent(tb testing.TB, manifests map[string]string) *agent {
	tb.Helper()
	a := &agent{tb: tb, dir: tb.TempDir(), root: testenv.BPFRoot(tb), cgroup: testenv.Cgroup(tb), log: &lockedBuffer{}, promises: 1 << 12}
	var err error
	if a.binary, err = agentBinary(); err != nil {
		tb.Fatal(err)
	}
	for name, text := range manifests {
		a.write(name, text)
	}
	tb.Cleanup(func() {
		a.kill()
		if tb.Failed() {
			tb.Logf("the agents say:\n%s", a.log)
		}
	})
	return a
}

// write puts a manifest in place in one step.
func (a *agent) write(name, text string) {
	a.tb.Helper()
	next := filepath.Join(a.tb.TempDir(), name)
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(a.dir, name)); err != nil {
		a.tb.Fatal(err)
	}
}

func (a *agent) remove(name string) {
	a.tb.Helper()
	if err := os.Remove(filepath.Join(a.dir, name)); err != nil {
		a.tb.Fatal(err)
	}
}

// start starts the agent and waits until everything it read is in force.
func (a *agent) start() {
	a.tb.Helper()
	a.launch()
	select {
	case <-a.ready:
	case <-time.After(time.Minute):
		a.tb.Fatal("the agent is not ready after a minute")
	}
}

// launch starts the agent.
func (a *agent) launch() {
	a.tb.Helper()
	a.cmd = exec.Command(a.binary, append([]string{"agent", "--manifests", a.dir, "--node-name", "node-a", "--cgroup", a.cgroup,
		"--bpf-root", a.root, "--promises", fmt.Sprint(a.promises), "--log-format", "json"}, a.flags...)...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		a.tb.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.tb.Fatal(err)
	}
	ready := make(chan struct{})
	a.ready = ready
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(a.log, lines.Text())
			if strings.Contains(lines.Text(), `"msg":"ready"`) {
				close(ready)
			}
		}
	}()
}

// kill ends the agent as kill -9 does.
func (a *agent) kill() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // says only that it was killed
	a.cmd = nil
}

// status is what headgate status -j says.
func (a *agent) status() (s struct {
	Agent     bool   `json:"agent"`
	Writes    uint64 `json:"writes"`
	Frontends int    `json:"frontends"`
	Backends  int    `json:"backends"`
	Object    string `json:"object"`
}) {
	a.tb.Helper()
	out, err := exec.Command(a.binary, "status", "-j", "--bpf-root", a.root).Output()
	if err != nil {
		a.tb.Fatalf("headgate status: %v", err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		a.tb.Fatalf("headgate status says %q: %v", out, err)
	}
	return s
}

// lockedBuffer is what several agents write to, one after the other.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serviceYAML is a Service of TCP port 80.
func serviceYAML(name, clusterIP string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: ClusterIP, clusterIP: %q, clusterIPs: [%q], ports: [{name: main, port: 80, protocol: TCP}]}
`, name, clusterIP, clusterIP)
}

// sliceYAML is the EndpointSlice of a Service, with endpoints at port 8080.
func sliceYAML(service string, endpoints ...*backend) string {
	family := "IPv4"
	var b strings.Builder
	for _, e := range endpoints {
		if e.at.Addr.Is6() {
			family = "IPv6"
		}
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}, nodeName: node-a}\n", e.at.Addr)
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: main, port: 8080, protocol: TCP}]
endpoints:
%s`, service, service, family, b.String())
}
