package metrics

import (
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

var update = flag.Bool("update", false, "write the golden files anew")

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// happened is an agent to which everything has happened that is counted.
func happened() *Metrics {
	m := New("v1.2.3")
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		m.ObserveQueued(f, start)
		m.ObserveSync(Sync{Family: f, Full: true, Took: 3 * time.Millisecond, End: start.Add(time.Second)})
		m.ObserveSync(Sync{Family: f, Took: time.Millisecond, End: start.Add(2 * time.Second)})
		m.ObserveSync(Sync{Family: f, Took: time.Minute, End: start.Add(time.Hour), Failed: true})
	}
	m.ObserveProgramming(lb.IPv4, start, start.Add(700*time.Millisecond))
	m.ObserveProgramming(lb.IPv4, start.Add(time.Second), start) // clocks disagree
	m.ObserveProgramming(lb.IPv6, time.Time{}, start)            // no annotation
	m.ObserveChanges(3, 5)
	m.SetPending(1, 2)
	m.SetNoLocalEndpoints(lb.IPv4, 4, 6)
	for _, code := range []int{200, 200, 503} {
		m.CountHealthz(code)
		m.CountLivez(code)
	}
	m.Requested("GET", "192.0.2.1:6443", "200", 20*time.Millisecond)
	m.Requested("GET", "192.0.2.1:6443", "<error>", 5*time.Second)
	m.Throttled("GET", "192.0.2.1:6443", 300*time.Millisecond)
	m.CountReconcileError()
	m.CountRestored(2)
	m.WatchContact(func() Contact {
		return Contact{Age: 1500 * time.Millisecond, Up: map[string]bool{"https://192.0.2.1:6443": true, "https://192.0.2.2:6443": false}}
	})
	m.SetProblems([]lb.Problem{{Object: "Service default/web"}, {Object: "Servise default/web"}, {}})
	m.SetProblems([]lb.Problem{{Object: "Service default/web"}, {Object: "Servise x/y"}, {Scope: lb.ScopeNode}})
	m.WatchDatapath(func() (Snapshot, error) { return snapshot, nil })
	return m
}

var snapshot = Snapshot{
	Frontends: 12, Backends: 30, Ejected: 1, Tables: 4, Services: 5, Writes: 1 << 40,
	Maps: []Map{
		{Name: "frontends", Entries: new(uint32(12)), MaxEntries: 1024, Bytes: 65536},
		{Name: "slots", Entries: new(uint32(3)), MaxEntries: 64, Bytes: 4096},
		{Name: "uncounted", MaxEntries: 64, Bytes: 4096},
	},
	Events: map[string]uint64{"connect": 100, "socket_entry_lost": 0},
	Drops:  map[string]uint64{"no_endpoint": 7, "no_service_port": 2},
	ServiceDrops: []ServiceCount{
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Reason: "no_endpoint", Count: 3},
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Reason: "no_endpoint", Count: 4},
	},
	ServiceTraffic: []ServiceTraffic{
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Connections: 1204, Traffic: traffic, ConnectTimes: connectTimes},
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Connections: 1, Traffic: traffic, ConnectTimes: connectTimes},
		{Service: lb.ServiceName{Namespace: "shop", Name: "canary"}, Connections: 9},
	},
	ServicesOmitted: 3,
	Peers:           []Peer{{Address: "192.0.2.2", Usable: true, Carried: 7, Received: 5}, {Address: "192.0.2.3"}},
	Attached:        []Program{{Hook: "connect4", Attached: true}, {Hook: "connect6"}, {Hook: "device_in", Device: "eth0", Attached: true}},
	BackendLoads: []Backend{
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Backend: backend(1), InFlight: 7, Connections: 77, Traffic: traffic, Response: 1500 * time.Microsecond, InZone: new(true)},
		{Service: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Backend: backend(2), Failures: 3, Ejected: true, InZone: new(false)},
		{Service: lb.ServiceName{Namespace: "shop", Name: "canary"}, Backend: backend(1), InFlight: 7}, // they share it
	},
	BackendsOmitted: 2,
}

var traffic = Traffic{
	Bytes: Directions{To: 1 << 40, From: 3}, Packets: Directions{To: 5, From: 4}, Failures: map[string]uint64{"refused": 2, "reset": 0},
}

// connectTimes are of connects: one of up to an eighth of a second, two of up to four, and one of more.
var connectTimes = ConnectTimes{Counts: []uint64{1, 0, 0, 0, 0, 2, 1}, Least: -3}

func backend(i byte) lb.AddrPort {
	return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 244, 0, i}), Port: 8080, Protocol: lb.TCP}
}

func TestTheExpositionIsAsWritten(t *testing.T) {
	got := ours(scrape(t, happened(), http.StatusOK))
	const golden = "testdata/exposition.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("exposition (-want +got):\n%s", diff)
	}
}

// kubeProxy is the table of kube-proxy 1.36: name, type, labels.
const kubeProxy = `
kubeproxy_network_programming_duration_seconds histogram ip_family,le
kubeproxy_proxy_healthz_total counter code
kubeproxy_proxy_livez_total counter code
kubeproxy_sync_full_proxy_rules_duration_seconds histogram ip_family,le
kubeproxy_sync_partial_proxy_rules_duration_seconds histogram ip_family,le
kubeproxy_sync_proxy_rules_duration_seconds histogram ip_family,le
kubeproxy_sync_proxy_rules_endpoint_changes_pending gauge -
kubeproxy_sync_proxy_rules_endpoint_changes_total counter -
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds gauge ip_family
kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge ip_family
kubeproxy_sync_proxy_rules_no_local_endpoints_total gauge ip_family,traffic_policy
kubeproxy_sync_proxy_rules_service_changes_pending gauge -
kubeproxy_sync_proxy_rules_service_changes_total counter -
`

func TestTheMetricsOfKubeProxyHaveItsNamesTypesAndLabels(t *testing.T) {
	types := regexp.MustCompile(`(?m)^# TYPE (kubeproxy_\w+) (\w+)$`)
	labels := regexp.MustCompile(`(\w+)="`)
	text := scrape(t, happened(), http.StatusOK)
	var got []string
	for _, m := range types.FindAllStringSubmatch(text, -1) {
		series := regexp.MustCompile(`(?m)^` + m[1] + `(?:_bucket)?(?:\{(.*)\})? `).FindStringSubmatch(text)
		names := []string{}
		for _, l := range labels.FindAllStringSubmatch(series[1], -1) {
			names = append(names, l[1])
		}
		slices.Sort(names)
		if len(names) == 0 {
			names = []string{"-"}
		}
		got = append(got, m[1]+" "+m[2]+" "+strings.Join(names, ","))
	}
	if diff := cmp.Diff(strings.Fields(kubeProxy), strings.Fields(strings.Join(got, " "))); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestBucketsAreThoseOfKubeProxy(t *testing.T) {
	sync := []float64{.001, .002, .004, .008, .016, .032, .064, .128, .256, .512, 1.024, 2.048, 4.096, 8.192, 16.384}
	if diff := cmp.Diff(sync, syncBuckets()); diff != "" {
		t.Errorf("sync (-want +got):\n%s", diff)
	}
	programming := []float64{.25, .5}
	for s := 1.0; s <= 59; s++ {
		programming = append(programming, s)
	}
	for s := 60.0; s <= 115; s += 5 {
		programming = append(programming, s)
	}
	programming = append(programming, 120, 150, 180, 210, 240, 270, 300)
	if diff := cmp.Diff(programming, programmingBuckets()); diff != "" {
		t.Errorf("programming (-want +got):\n%s", diff)
	}
}

func TestTheProcessAndTheRuntimeAreMeasured(t *testing.T) {
	text := scrape(t, New("v1"), http.StatusOK)
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "go_goroutines", "go_gc_duration_seconds_count"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no %s", name)
		}
	}
}

func TestADatapathThatCannotBeReadIsCountedAndHidesNothingElse(t *testing.T) {
	m := New("v1")
	m.WatchDatapath(func() (Snapshot, error) { return snapshot, errors.New("broken") })
	scrape(t, m, http.StatusOK)
	text := scrape(t, m, http.StatusOK)
	if !strings.Contains(text, "\nheadgate_datapath_read_errors_total 2\n") {
		t.Error("the failures are not counted")
	}
	if strings.Contains(text, "\nheadgate_frontends ") {
		t.Error("shown although it could not be read")
	}
	if !strings.Contains(text, "\nheadgate_reconcile_errors_total 0\n") {
		t.Error("the agent's own metrics are gone")
	}
}

func TestANameThatIsNoTextHidesOnlyItself(t *testing.T) {
	m := New("v1")
	m.WatchDatapath(func() (Snapshot, error) {
		return Snapshot{Maps: []Map{{Name: "\xff"}, {Name: "slots", Bytes: 9}}}, nil
	})
	text := scrape(t, m, http.StatusOK)
	if !strings.Contains(text, "\nheadgate_map_bytes{map=\"slots\"} 9\n") {
		t.Errorf("the map beside it is gone:\n%s", ours(text))
	}
}

func TestEveryMetricsHasARegistryOfItsOwn(t *testing.T) {
	a, b := New("v1"), New("v1")
	a.CountReconcileError()
	if text := scrape(t, b, http.StatusOK); !strings.Contains(text, "\nheadgate_reconcile_errors_total 0\n") {
		t.Error("what happened to one is counted for the other")
	}
}

func scrape(t *testing.T, m *Metrics, code int) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(HandlerConfig{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != code {
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// ours leaves out what differs from run to run and from machine to machine.
func ours(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "headgate_") || strings.HasPrefix(name, "rest_client_") || strings.HasPrefix(name, "kubeproxy_") {
			out.WriteString(goVersion.ReplaceAllString(line, `go_version="go"`))
		}
	}
	return out.String()
}

var goVersion = regexp.MustCompile(`go_version="[^"]*"`)
