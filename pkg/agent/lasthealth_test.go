package agent

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// keptIn returns the configuration of a node with a state directory, and pins that an agent had just now.
func keptIn(t *testing.T) (cfg Config) {
	t.Helper()
	cfg.StateDir, cfg.NodeName, cfg.Datapath.Root = t.TempDir(), "a", t.TempDir()
	return cfg
}

// healthOf returns an agent that has been told of the node and of health checks.
func healthOf(cfg Config, node lb.Node, checks map[lb.ServiceName]lb.HealthCheck) *statusServer {
	a := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	a.setNode(node)
	a.last.change(checks, nil)
	return a
}

var web, shop = lb.ServiceName{Namespace: "default", Name: "web"}, lb.ServiceName{Namespace: "default", Name: "shop"}

func TestTheNextAgentAnswersWhatTheOneBeforeAnswered(t *testing.T) {
	checks := map[lb.ServiceName]lb.HealthCheck{web: {Port: 32100, LocalEndpoints: 2}, shop: {Port: 32101}}
	for _, tc := range []struct {
		name    string
		leaving bool
		change  func(*Config)
		said    *lb.Node // by a source, before the agent begins
		want    int
		checks  int
	}{
		{name: "as it was", want: http.StatusOK, checks: 2},
		{name: "a node about to leave", leaving: true, want: http.StatusServiceUnavailable, checks: 2},
		{name: "about to leave by now", said: &lb.Node{Name: "a", Leaving: true}, want: http.StatusServiceUnavailable, checks: 2},
		{name: "another node", change: func(c *Config) { c.NodeName = "b" }, want: http.StatusServiceUnavailable},
		{name: "other pins", change: func(c *Config) { c.Datapath.Root += "/other" }, want: http.StatusServiceUnavailable},
		{name: "another directory", change: func(c *Config) { c.StateDir += "/other" }, want: http.StatusServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := keptIn(t)
			healthOf(cfg, lb.Node{Name: "a", Leaving: tc.leaving}, checks)
			if tc.change != nil {
				tc.change(&cfg)
			}
			next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
			if tc.said != nil {
				next.setNode(*tc.said)
			}
			t.Cleanup(next.services.Close)
			if next.begin(true); len(next.last.checks) != tc.checks {
				t.Errorf("%d health checks are known, want %d", len(next.last.checks), tc.checks)
			}
			if code, body := get(t, next.proxy.Handler(), "/healthz"); code != tc.want {
				t.Errorf("/healthz %d, %s; want %d", code, body, tc.want)
			}
			if code, body := get(t, next.proxy.Handler(), "/livez"); code != http.StatusOK {
				t.Errorf("/livez %d, %s", code, body)
			}
		})
	}
}

func TestWhatIsGoneIsAnsweredNoMoreOnceEverythingIsInForce(t *testing.T) {
	cfg := keptIn(t)
	healthOf(cfg, lb.Node{Name: "a"}, map[lb.ServiceName]lb.HealthCheck{web: {Port: 32100, LocalEndpoints: 2}, shop: {Port: 32101}})
	next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	now := map[lb.ServiceName]lb.HealthCheck{web: {Port: 32100, LocalEndpoints: 1}}
	want := map[lb.ServiceName]lb.HealthCheck{web: now[web], shop: {}}
	if diff := cmp.Diff(want, next.last.change(now, nil)); diff != "" {
		t.Errorf("what is changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(now, newLastHealth(cfg, zap.NewNop()).checks); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
	if got := next.last.change(nil, nil); got != nil {
		t.Errorf("no change changes %v", got)
	}
}

// A Service whose object cannot be read is in force as it was, and so is its health check.
func TestTheHealthCheckOfWhatCannotBeReadStays(t *testing.T) {
	cfg := keptIn(t)
	healthOf(cfg, lb.Node{Name: "a"}, map[lb.ServiceName]lb.HealthCheck{web: {Port: 32100, LocalEndpoints: 2}})
	next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	for range 2 {
		if got := next.last.change(nil, map[lb.ServiceName]bool{web: true}); got != nil {
			t.Errorf("%v has changed", got)
		}
	}
	want := map[lb.ServiceName]lb.HealthCheck{web: {}}
	if diff := cmp.Diff(want, next.last.change(nil, nil)); diff != "" {
		t.Errorf("once the Service is gone (-want +got):\n%s", diff)
	}
}

// Nobody may count on an agent that has programmed nothing, or whose changes wait for too long.
func TestAnAgentThatProgrammedNothingYetIsNotReady(t *testing.T) {
	cfg := keptIn(t)
	healthOf(cfg, lb.Node{Name: "a"}, nil)
	for _, serves := range []bool{true, false} {
		next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
		next.begin(serves)
		if code, _ := get(t, next.proxy.Handler(), "/healthz"); (code == http.StatusOK) != serves {
			t.Errorf("/healthz %d, while the programs of an agent before serve: %v", code, serves)
		}
		if code, body := get(t, next.socketHandler(), "/healthz"); code != http.StatusServiceUnavailable {
			t.Errorf("headgate ready is told %d, %s", code, body)
		}
		next.setNode(lb.Node{Name: "a"})
		next.Flushed(reconciler.Attempt{})
		for _, h := range []http.Handler{next.proxy.Handler(), next.socketHandler()} {
			if code, body := get(t, h, "/healthz"); code != http.StatusOK {
				t.Errorf("with all in force: %d, %s", code, body)
			}
		}
	}
	long := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(cfg.Datapath.Root, long, long); err != nil {
		t.Fatal(err)
	}
	next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	if next.begin(true); next.proxy.Fit() {
		t.Error("changes wait for two minutes, and the agent counts as healthy")
	}
}

func TestAFileThatCannotBeReadIsLeftOut(t *testing.T) {
	cfg := keptIn(t)
	body := fmt.Sprintf(`{"bpfRoot": %q, "nodeName": "a", "checks": 7}`, cfg.Datapath.Root)
	if err := os.WriteFile(filepath.Join(cfg.StateDir, healthFile), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	next := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
	if next.begin(true); next.proxy.Fit() {
		t.Error("a file that cannot be read makes a node healthy")
	}
}

// Whoever asks which ports an agent is to serve may see its pins below another directory.
func TestHealthPortsAreThoseOfTheAgentOfARoot(t *testing.T) {
	dir := t.TempDir()
	if ports, err := HealthPorts(dir, "/sys/fs/bpf/headgate"); len(ports) > 0 || err != nil {
		t.Errorf("of no agent: %v, %v", ports, err)
	}
	write := func(body string) {
		if err := os.WriteFile(filepath.Join(dir, healthFile), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"bpfRoot":"/sys/fs/bpf/headgate","nodeName":"a","checks":[{"service":{"Namespace":"default","Name":"web"},"Port":30090},{"service":{"Namespace":"default","Name":"api"},"Port":30091}]}`)
	for root, want := range map[string][]uint16{
		"/sys/fs/bpf/headgate": {30090, 30091}, "/host/sys/fs/bpf/headgate": {30090, 30091}, "/sys/fs/bpf/other": nil,
	} {
		if ports, err := HealthPorts(dir, root); !slices.Equal(ports, want) || err != nil {
			t.Errorf("below %s: %v, %v; want %v", root, ports, err, want)
		}
	}
	write("{")
	if _, err := HealthPorts(dir, "/sys/fs/bpf/headgate"); err == nil || !strings.Contains(err.Error(), healthFile) {
		t.Errorf("of a broken file: %v", err)
	}
}
