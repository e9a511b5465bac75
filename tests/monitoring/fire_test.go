package monitoring_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// beside skips what takes minutes and no change has to pass.
func beside(t *testing.T) {
	t.Helper()
	if os.Getenv("HEADGATE_MONITORING") == "" {
		t.Skip("only with HEADGATE_MONITORING=1: make monitoring-test")
	}
}

// web is a Service with backends that listen, or do not.
const web = `apiVersion: v1
kind: Service
metadata: {name: web, annotations: {headgate.dev/algorithm: lc}}
spec: {clusterIP: 10.96.0.1, externalIPs: [203.0.113.1], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}, annotations: {endpoints.kubernetes.io/last-change-trigger-time: "%s"}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [%s]
`

const one, two = "{addresses: [10.244.0.1]}", "{addresses: [10.244.0.1]}, {addresses: [10.244.0.2]}"

func webOf(endpoints string) string {
	return fmt.Sprintf(web, time.Now().UTC().Format(time.RFC3339), endpoints)
}

// newAgent returns an agent that exports metrics, and where.
func newAgent(t *testing.T, flags ...string) (*testenv.Agent, string) {
	t.Helper()
	metrics := freeAddress(t)
	a := testenv.NewAgent(t, map[string]string{"web.yaml": webOf(one)})
	a.Flags = append([]string{"--metrics-bind-address", metrics, "--healthz-bind-address", freeAddress(t)}, flags...)
	return a, metrics
}

// below makes a cgroup in another one until the test ends: no process is in it.
func below(t *testing.T, cgroup, name string) string {
	t.Helper()
	path := filepath.Join(cgroup, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) }) // the test may have done so
	return path
}

// serve answers connections to a backend until the test ends.
func serve(t *testing.T, address string) {
	t.Helper()
	testenv.AddAddress(t, address)
	l, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Echo(t, l)
}

// connect opens a connection that is closed when the test ends.
func connect(t *testing.T, to string) error {
	t.Helper()
	c, err := net.DialTimeout("tcp", to, patience)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return err
}

func TestAnAgentThatEnds(t *testing.T) {
	beside(t)
	a, metrics := newAgent(t)
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	a.Kill()
	p.fires("HeadgateAgentDown")
	a.Start()
	p.ends("HeadgateAgentDown")
}

func TestAnAPIServerThatGoesAway(t *testing.T) {
	beside(t)
	api := newAPIServer(t)
	a, metrics := newAgent(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", "http://"+api.address)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(a.Binary, append([]string{"agent", "--kubeconfig", kubeconfig, "--node-name", "node-a",
		"--cgroup", a.Cgroup, "--bpf-root", a.Root}, a.Flags...)...)
	cmd.Stdout, cmd.Stderr = a.Log, a.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := startPrometheus(t, metrics)
	p.eventually("there is contact", func() bool { return len(p.query("headgate_api_contact_age_seconds == 0")) == 1 })
	p.ends("what fired before")
	api.stop()
	p.fires("HeadgateNoAPIContact")
	api.start(t)
	p.ends("HeadgateNoAPIContact")
}

func TestACgroupThatIsRemoved(t *testing.T) {
	beside(t)
	a, metrics := newAgent(t)
	a.Cgroup = below(t, a.Cgroup, "below")
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	if err := os.Remove(a.Cgroup); err != nil {
		t.Fatal(err)
	}
	p.fires("HeadgateProgramNotAttached", "HeadgateProblems")
}

func TestABackendThatRefuses(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	testenv.AddAddress(t, "10.244.0.2")
	a, metrics := newAgent(t)
	a.Write("web.yaml", strings.Replace(webOf(two), ": lc", ": random", 1))
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	for range 4 { // a backend that one client alone finds at fault is avoided by that one
		t.Run("client", func(t *testing.T) {
			testenv.EnterNetns(t)
			serve(t, "10.244.0.1")
			testenv.AddAddress(t, "10.244.0.2")
			for range 30 {
				_ = connect(t, "10.96.0.1:80") // refused where it is the other one
			}
		})
	}
	p.fires("HeadgateBackendsEjected", "HeadgateServiceDown") // half of the connections fail, or more
}

func TestAMapOfFixedSizeThatFills(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	a, metrics := newAgent(t)
	a.SocketEntries = 128
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	for range 1000 { // two may want the same place
		if err := connect(t, "10.96.0.1:80"); err != nil {
			t.Fatal(err)
		}
	}
	p.fires("HeadgateMapNearlyFull")
}

func TestAFlowTableOfLiveFlows(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	client := testenv.Outside(t, "out0")
	a, metrics := newAgent(t, "--devices", "out0", "--flows", "1024") // of 512 connections
	a.Cgroup = below(t, a.Cgroup, "node")                             // without the client
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	made, lost := 0, 0
	for lost < 3 && made < 1000 {
		var c net.Conn
		err := client.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", "203.0.113.1:80", 500*time.Millisecond)
			return err
		})
		if err != nil {
			lost++
			continue
		}
		t.Cleanup(func() { _ = c.Close() })
		made++
	}
	t.Logf("%d connections were made before %d were not", made, lost)
	if made < 300 {
		t.Errorf("%d connections found room in 1,024 entries, want 300 at least", made)
	}
	p.fires("HeadgateFlowTableFull")
}

func TestAChangeThatComesLate(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	a, metrics := newAgent(t)
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	a.Stopped(func() {
		a.Write("web.yaml", webOf(two))
		time.Sleep(5 * time.Second)
	})
	p.fires("HeadgateProgrammingSlow", "HeadgateAgentDown") // it did not answer while it was stopped
}

func TestAFolderThatIsAway(t *testing.T) {
	beside(t)
	a, metrics := newAgent(t)
	a.Start()
	p := startPrometheus(t, metrics)
	p.isQuiet()
	if err := os.Rename(a.Dir, a.Dir+"-away"); err != nil {
		t.Fatal(err)
	}
	p.fires("HeadgateProblems")
	if err := os.Rename(a.Dir+"-away", a.Dir); err != nil {
		t.Fatal(err)
	}
	p.ends("HeadgateProblems")
}

func TestAnAgentOfAnotherVersion(t *testing.T) {
	beside(t)
	var agents []string
	var last *testenv.Agent
	for i := range 3 {
		a, metrics := newAgent(t)
		a.Cgroup = below(t, a.Cgroup, fmt.Sprint(i))
		a.Start()
		agents, last = append(agents, metrics), a
	}
	p := startPrometheus(t, agents...)
	p.isQuiet()
	other := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-X main.version=v0.0.1", "-o", other, "github.com/headgate/headgate/cmd/headgate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build headgate: %v\n%s", err, out)
	}
	last.Kill()
	last.Binary = other
	last.Start()
	p.fires("HeadgateVersionDiffers", "HeadgateAgentDown")
}

// apiServer is as much of an API server as an agent asks for: there is nothing in it.
type apiServer struct {
	address string
	server  *httptest.Server
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{address: freeAddress(t)}
	a.start(t)
	t.Cleanup(a.stop)
	return a
}

func (a *apiServer) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(answerWithNothing))
	a.server.Listener.Close()
	a.server.Listener = l
	a.server.Start()
}

// stop closes the port and every watch, the port first: Close waits for watches that come meanwhile.
func (a *apiServer) stop() {
	a.server.Listener.Close()
	a.server.CloseClientConnections()
	a.server.Close()
}

// kinds are what agents list, by the last part of the path.
var kinds = map[string]string{"services": "v1 Service", "endpointslices": "discovery.k8s.io/v1 EndpointSlice", "servicecidrs": "networking.k8s.io/v1 ServiceCIDR", "nodes": "v1 Node"}

// answerWithNothing answers lists and watches.
func answerWithNothing(w http.ResponseWriter, r *http.Request) {
	version, kind, known := strings.Cut(kinds[filepath.Base(r.URL.Path)], " ")
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case !known:
		http.NotFound(w, r)
	case query.Get("watch") == "":
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, version, kind+"List")
	default:
		if query.Get("sendInitialEvents") == "true" {
			fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", version, kind)
		}
		_ = http.NewResponseController(w).Flush() // it may be gone
		<-r.Context().Done()
	}
}
