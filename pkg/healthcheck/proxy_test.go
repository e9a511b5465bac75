package healthcheck

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// step is something that happens to a proxy with a timeout of ten seconds, and
// what is answered afterwards.
type step struct {
	what    string
	queued  []lb.Family
	updated []lb.Family
	wait    time.Duration
	code    int
}

var both = []lb.Family{lb.IPv4, lb.IPv6}

// story is the same for /healthz and /livez.
var story = []step{
	{what: "nothing has happened yet", code: 200},
	{what: "both families are programmed", updated: both, code: 200},
	{what: "nothing is queued for long", wait: 25 * time.Second, code: 200},
	{what: "IPv4 has just been queued", queued: both[:1], code: 200},
	{what: "IPv4 is almost late", wait: 10*time.Second - 1, code: 200},
	{what: "IPv4 is late", wait: 1, code: 503},
	{what: "IPv4 is programmed", updated: both[:1], code: 200},
	{what: "IPv6 is late", queued: both[1:], wait: 25 * time.Second, code: 503},
	{what: "IPv4 is programmed, which does not help IPv6", updated: both[:1], code: 503},
	{what: "IPv6 is programmed", updated: both[1:], code: 200},
	{what: "both are late", queued: both, wait: 25 * time.Second, code: 503},
	{what: "one of them is programmed", updated: both[:1], code: 503},
	{what: "the other is programmed too", updated: both[1:], code: 200},
	{what: "IPv4 waits", queued: both[:1], wait: 6 * time.Second, code: 200},
	{what: "more for IPv4 does not renew the wait", queued: both[:1], wait: 6 * time.Second, code: 503},
}

func TestTheProxyIsHealthyUntilAnUpdateWaitsTooLong(t *testing.T) {
	for _, path := range []string{"/healthz", "/livez"} {
		t.Run(path, func(t *testing.T) {
			p := newProxy()
			p.server.SetNode(&Node{})
			codes := map[int]int{}
			for _, s := range story {
				for _, f := range s.queued {
					p.server.QueuedUpdate(f)
				}
				for _, f := range s.updated {
					p.server.Updated(f)
				}
				p.now = p.now.Add(s.wait)
				code, _ := p.ask(t, path)
				codes[s.code]++
				if code != s.code || p.server.Healthy() != (s.code == 200) {
					t.Errorf("%s: answered %d and healthy is %v, want %d", s.what, code, p.server.Healthy(), s.code)
				}
			}
			if diff := cmp.Diff(map[string]map[int]int{path: codes}, p.counted); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFirstUpdateThatWaitsTooLongIsUnhealthyToo(t *testing.T) {
	p := newProxy()
	p.server.QueuedUpdate(lb.IPv6)
	p.now = p.now.Add(time.Minute)
	if code, _ := p.ask(t, "/livez"); code != 503 {
		t.Errorf("answered %d", code)
	}
}

func TestOnlyHealthzAsksWhetherTheNodeStays(t *testing.T) {
	for _, tc := range []struct {
		name    string
		node    *Node
		healthz int
	}{
		{"an unknown node", nil, 503},
		{"a node with another taint", &Node{Taints: []string{"other"}}, 200},
		{"a node that the autoscaler is going to delete", &Node{Taints: []string{"other", "ToBeDeletedByClusterAutoscaler"}}, 503},
		{"a node that is being deleted", &Node{Deleting: true}, 503},
		{"an ordinary node", &Node{}, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProxy()
			p.server.SetNode(&Node{Deleting: tc.healthz == 200}) // another answer before
			p.server.SetNode(tc.node)
			if code, _ := p.ask(t, "/healthz"); code != tc.healthz {
				t.Errorf("/healthz answered %d, want %d", code, tc.healthz)
			}
			if code, _ := p.ask(t, "/livez"); code != 200 {
				t.Errorf("/livez answered %d", code)
			}
			if p.server.NodeEligible() != (tc.healthz == 200) {
				t.Errorf("eligible is %v", p.server.NodeEligible())
			}
		})
	}
}

func TestTheBodySaysWhichFamilyIsLateAndSinceWhen(t *testing.T) {
	p := newProxy()
	p.server.Updated(lb.IPv6)
	p.now = p.now.Add(time.Second)
	p.server.Updated(lb.IPv4)
	p.server.QueuedUpdate(lb.IPv6)
	p.now = p.now.Add(9 * time.Second)

	healthy := map[string]any{
		"lastUpdated": "2026-01-02T03:04:15Z", "currentTime": "2026-01-02T03:04:15Z", "healthy": true,
		"status": map[string]any{
			"IPv4": map[string]any{"lastUpdated": "2026-01-02T03:04:06Z", "healthy": true},
			"IPv6": map[string]any{"lastUpdated": "2026-01-02T03:04:05Z", "healthy": true},
		},
	}
	p.wantBody(t, "/livez", healthy)
	healthy["nodeEligible"] = false
	healthy["reason"] = "the Node object is not known yet"
	healthy["lastUpdated"] = "2026-01-02T03:04:06Z" // not the current time, as the answer is 503
	p.wantBody(t, "/healthz", healthy)

	p.now = p.now.Add(time.Second)
	p.wantBody(t, "/livez", map[string]any{
		"lastUpdated": "2026-01-02T03:04:06Z", "currentTime": "2026-01-02T03:04:16Z", "healthy": false,
		"reason": "changes wait to be brought into the kernel",
		"status": map[string]any{
			"IPv4": map[string]any{"lastUpdated": "2026-01-02T03:04:06Z", "healthy": true},
			"IPv6": map[string]any{"lastUpdated": "2026-01-02T03:04:05Z", "healthy": false},
		},
	})
}

func TestTheBodySaysWhatIsWrongBesideChanges(t *testing.T) {
	const waits, detached = "API server: refuses connections", "programs are out of force: connect4"
	for _, tc := range []struct {
		name           string
		node           *Node
		contact, unfit string
		healthz, livez int
		reason         string
	}{
		{"starting without contact", nil, waits, "", 503, 200, waits},
		{"contact lost later", &Node{}, waits, "", 200, 200, waits},
		{"programs detached", &Node{}, "", detached, 503, 200, detached},
		{"both", &Node{}, waits, detached, 503, 200, detached + "; " + waits},
		{"on its way out", &Node{Deleting: true}, "", "", 503, 200, "the node is going to be deleted"},
		{"nothing", &Node{}, "", "", 200, 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProxy()
			p.server.SetNode(tc.node)
			p.server.SetContact(tc.contact)
			p.server.SetUnfit(tc.unfit)
			if p.server.Fit() != (tc.unfit == "") {
				t.Errorf("fit: %v", p.server.Fit())
			}
			code, body := p.ask(t, "/healthz")
			if reason, _ := body["reason"].(string); code != tc.healthz || reason != tc.reason {
				t.Errorf("/healthz: %d, %q; want %d, %q", code, reason, tc.healthz, tc.reason)
			}
			if code, _ := p.ask(t, "/livez"); code != tc.livez {
				t.Errorf("/livez: %d, want %d", code, tc.livez)
			}
		})
	}
}

func TestWithoutATimeoutItIsAMinute(t *testing.T) {
	now := time.Now()
	p := NewProxyServer(ProxyConfig{Now: func() time.Time { return now }})
	p.QueuedUpdate(lb.IPv4)
	for wait, want := range map[time.Duration]bool{59 * time.Second: true, 60 * time.Second: false} {
		late := now
		now = now.Add(wait)
		if p.Healthy() != want {
			t.Errorf("healthy after %s is %v", wait, !want)
		}
		now = late
	}
}

// proxy is a ProxyServer with a clock of its own.
type proxy struct {
	server  *ProxyServer
	now     time.Time
	counted map[string]map[int]int
}

func newProxy() *proxy {
	p := &proxy{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), counted: map[string]map[int]int{}}
	count := func(path string) func(int) {
		return func(code int) {
			if p.counted[path] == nil {
				p.counted[path] = map[int]int{}
			}
			p.counted[path][code]++
		}
	}
	p.server = NewProxyServer(ProxyConfig{
		Timeout: 10 * time.Second, Now: func() time.Time { return p.now },
		Healthz: count("/healthz"), Livez: count("/livez"),
	})
	return p
}

// ask returns status code and body, after a look at the headers.
func (p *proxy) ask(t *testing.T, path string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	p.server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: headers %v", path, w.Header())
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: %s: %s", path, w.Body, err)
	}
	return w.Code, body
}

func (p *proxy) wantBody(t *testing.T, path string, want map[string]any) {
	t.Helper()
	if _, got := p.ask(t, path); !cmp.Equal(want, got) {
		t.Errorf("%s (-want +got):\n%s", path, cmp.Diff(want, got))
	}
}
