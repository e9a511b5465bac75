package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// get returns the status and the body of an answer.
func get(tb testing.TB, h http.Handler, path string) (int, string) {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestTheNodeIsEligibleOnceItIsKnownAndAsLongAsItStays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config Config
		nodes  []lb.Node
		want   int
	}{
		{"nothing known of it", Config{}, nil, http.StatusServiceUnavailable},
		{"with a folder of manifests", Config{Manifests: "dir"}, nil, http.StatusOK},
		{"known", Config{}, []lb.Node{{Name: "a"}}, http.StatusOK},
		{"about to leave", Config{}, []lb.Node{{Name: "a"}, {Name: "a", Leaving: true}}, http.StatusServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newStatusServer(tc.config, zap.NewNop(), nil, metrics.New("test"))
			for _, n := range tc.nodes {
				a.setNode(n)
			}
			if code, body := get(t, a.proxy.Handler(), "/healthz"); code != tc.want {
				t.Errorf("got %d, %s", code, body)
			}
			if code, body := get(t, a.proxy.Handler(), "/livez"); code != http.StatusOK {
				t.Errorf("/livez: got %d, %s", code, body)
			}
		})
	}
}

func TestMetricsTellWhatTheReconcilerDid(t *testing.T) {
	a := newStatusServer(Config{Version: "v1"}, zap.NewNop(), nil, metrics.New("test"))
	a.queuedUpdate(time.Now())
	a.Problems([]lb.Problem{{Object: "Service default/web", Reason: "is bad"}})
	a.Flushed(reconciler.Attempt{
		Began: time.Now().Add(-time.Second), Ended: time.Now(),
		Batch:   reconciler.Batch{Updates: 1, Services: 2, Slices: 3},
		NoLocal: map[lb.Family]lb.NoLocal{lb.IPv4: {Internal: 4, External: 5}},
	})
	_, body := get(t, a.metrics.Handler(metrics.HandlerConfig{}), "/metrics")
	for _, want := range []string{
		"kubeproxy_sync_proxy_rules_service_changes_total 2",
		"kubeproxy_sync_proxy_rules_endpoint_changes_total 3",
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 4`,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"} 5`,
		`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestTheProxyIsUpToDateOnlyWhenNothingWaits(t *testing.T) {
	a := newStatusServer(Config{}, zap.NewNop(), nil, metrics.New("test"))
	a.queuedUpdate(time.Now())
	a.queuedUpdate(time.Now())
	a.Flushed(reconciler.Attempt{Batch: reconciler.Batch{Updates: 1}})
	if a.queued != 1 {
		t.Errorf("%d updates wait, want 1", a.queued)
	}
	a.Flushed(reconciler.Attempt{Batch: reconciler.Batch{Updates: 1}})
	if a.queued != 0 {
		t.Errorf("%d updates wait, want none", a.queued)
	}
	_, body := get(t, a.metrics.Handler(noConfig), "/metrics") // the first was about everything
	wantLine(t, body, `kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} `, 1)
	wantLine(t, body, `kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"} `, 1)
}

func TestAChangeMayWaitForTwoSyncPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cfg Config
		cfg.Manifests, cfg.SyncPeriod = "dir", 7*time.Second
		a := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test"))
		a.Flushed(reconciler.Attempt{})
		a.queuedUpdate(time.Now())
		for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			time.Sleep(13 * time.Second)
			if code, body := get(t, a.proxy.Handler(), "/healthz"); code != want {
				t.Errorf("/healthz: %d, %s; want %d", code, body, want)
			}
		}
	})
}

func TestAnAddressThatIsTakenEndsTheAgentWhereThatIsAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, hard := range []bool{true, false} {
		var cfg Config
		cfg.HealthzAddress, cfg.BindHardFail = l.Addr().String(), hard
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		core, logs := observer.New(zap.InfoLevel)
		answers := newStatusServer(cfg, zap.New(core), nil, metrics.New("test")).serve(cancel)
		for !hard && logs.Len() == 0 && ctx.Err() == nil { // it tries again until it ends
			time.Sleep(time.Millisecond)
		}
		if hard {
			<-ctx.Done()
		}
		if err := answers.stop(); (err != nil) != hard {
			t.Errorf("with --bind-address-hard-fail=%v: %v", hard, err)
		}
		cancel()
	}
}

func TestAPortIsFreeOnceAnswersAreStopped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var cfg Config
	cfg.HealthzAddress = l.Addr().String()
	l.Close()
	answers := newStatusServer(cfg, zap.NewNop(), nil, metrics.New("test")).serve(func() {})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		resp, err := http.Get("http://" + cfg.HealthzAddress + "/livez")
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := answers.stop(); err != nil {
		t.Error(err)
	}
	if l, err = net.Listen("tcp", cfg.HealthzAddress); err != nil {
		t.Fatalf("the next process cannot have the port: %v", err)
	}
	l.Close()
}

func TestTheConfigurationCanBeRead(t *testing.T) {
	a := newStatusServer(Config{Settings: map[string]any{"node-name": "node-a"}}, zap.NewNop(), nil, metrics.New("test"))
	h := a.metrics.Handler(metrics.HandlerConfig{Config: func() any { return a.cfg.Settings }})
	if code, body := get(t, h, "/configz"); code != http.StatusOK || body != `{"node-name":"node-a"}` {
		t.Errorf("got %d, %s", code, body)
	}
}

var noConfig = metrics.HandlerConfig{}

// wantLine checks the value of one line of an exposition.
func wantLine(tb testing.TB, exposition, start string, value int) {
	tb.Helper()
	if !strings.Contains(exposition, start+strconv.Itoa(value)+"\n") {
		tb.Errorf("no line %s%d in:\n%s", start, value, exposition)
	}
}
