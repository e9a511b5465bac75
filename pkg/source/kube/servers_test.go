package kube

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
)

// emptyWatch is what client-go gives in place of a watch after a time-out.
type emptyWatch struct{ watch.Interface }

// fleet is API servers by host, some of them ill.
type fleet struct {
	refusing map[string]bool
	failing  map[string]bool
	asked    []string
}

// RoundTrip is that of http.RoundTripper.
func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Host != "" {
		return nil, fmt.Errorf("%s was called %s", req.URL.Host, req.Host)
	}
	f.asked = append(f.asked, req.URL.Host)
	code := http.StatusOK
	switch {
	case f.refusing[req.URL.Host]:
		return nil, errors.New("dial: no route to host")
	case f.failing[req.URL.Host]:
		code = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

func mustURLs(tb testing.TB, values ...string) []*url.URL {
	tb.Helper()
	servers, err := parseServers(values)
	if err != nil {
		tb.Fatal(err)
	}
	return servers
}

func TestRequestsGoToTheServerThatAnsweredLast(t *testing.T) {
	f := &fleet{refusing: map[string]bool{}, failing: map[string]bool{}}
	var told []string
	rt := &failover{base: f, servers: mustURLs(t, "https://a:1", "https://b:2", "https://c:3"), states: newServerStates(),
		report: func(err error) { told = append(told, err.Error()) }, back: func() { told = append(told, "back") }}
	for _, step := range []struct {
		name  string
		alter func()
		post  bool
		asked string
		err   string
		back  bool
	}{
		{name: "the first", asked: "a:1"},
		{name: "the next where it refuses", alter: func() { f.refusing["a:1"] = true }, asked: "a:1 b:2"},
		{name: "the one that answered", asked: "b:2"},
		{name: "also when the first is back", alter: func() { f.refusing["a:1"] = false }, asked: "b:2"},
		{name: "the same answer of an unwell one", alter: func() { f.failing["b:2"] = true }, asked: "b:2"},
		{name: "but not twice", asked: "c:3"},
		{name: "round to the first", alter: func() { f.refusing["c:3"] = true }, asked: "c:3 a:1"},
		{name: "all where none answers", alter: func() { f.refusing["a:1"], f.refusing["b:2"] = true, true }, asked: "a:1 b:2 c:3",
			err: "a:1: dial: no route to host; b:2: dial: no route to host; c:3: dial: no route to host"},
		{name: "then from the next on", alter: func() { clear(f.refusing); clear(f.failing) }, asked: "b:2", back: true},
		{name: "one alone where it cannot be sent again", alter: func() { f.refusing["b:2"] = true }, post: true, asked: "b:2",
			err: "b:2: dial: no route to host"},
		{name: "and the next one the next time", post: true, asked: "c:3", back: true},
	} {
		f.asked, told = nil, nil
		if step.alter != nil {
			step.alter()
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.96.0.1:443/api", nil)
		if step.post {
			req = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://10.96.0.1:443/api", strings.NewReader("x"))
		}
		_, err := rt.RoundTrip(req)
		if got := strings.Join(f.asked, " "); got != step.asked {
			t.Errorf("%s: asked %s, want %s", step.name, got, step.asked)
		}
		want := step.err
		if step.back {
			want = "back"
		}
		if got := strings.Join(told, "|"); got != want || (err != nil) != (step.err != "") {
			t.Errorf("%s: got %v, told %q, want %q", step.name, err, got, want)
		}
		if err != nil && !utilnet.IsConnectionRefused(err) {
			t.Errorf("%s: client-go would list everything again after %v", step.name, err)
		}
		if req.URL.Host != "10.96.0.1:443" {
			t.Errorf("%s: the request of the caller was changed", step.name)
		}
	}
}

func TestNodesSpreadOverTheServers(t *testing.T) {
	servers := mustURLs(t, "https://a:1", "https://b:2", "https://c:3")
	first, second := map[string]int{}, map[string]int{}
	const n = 3000
	for i := range n {
		order := orderFor(fmt.Sprintf("node-%d", i), servers)
		first[order[0].Host]++
		if order[0].Host == "a:1" {
			second[order[1].Host]++
		}
		if again := orderFor(fmt.Sprintf("node-%d", i), servers); !slices.Equal(order, again) {
			t.Fatalf("got %v and %v", order, again)
		}
	}
	for _, host := range []string{"a:1", "b:2", "c:3"} {
		if first[host] < n/6 || host != "a:1" && second[host] < n/18 {
			t.Errorf("first %v, second after a:1 %v", first, second)
		}
	}
}

func TestServersAreURLs(t *testing.T) {
	for _, value := range []string{"10.0.0.1:6443", "https://", "ftp://a", "https://a/path", "https://a?b", "https://a b"} {
		if _, err := parseServers([]string{value}); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("read API server %q: ", value)) {
			t.Errorf("%s: %v", value, err)
		}
	}
	var hosts []string
	for _, u := range mustURLs(t, "https://10.0.0.1:6443", "https://[fd00::1]/", "http://a") {
		hosts = append(hosts, u.Host)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:6443", "[fd00::1]", "a"}, hosts); diff != "" {
		t.Error(diff)
	}
}

// mustServeTLS starts an API server at an address with a certificate for
// 127.0.0.1, ::1 and example.com. It returns its URL, and the certificate as a
// kubeconfig has it.
func mustServeTLS(t *testing.T, a *api, host string) (url, ca string) {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, EnableHTTP2: true, Config: &http.Server{Handler: a, ErrorLog: log.New(io.Discard, "", 0)}}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s.URL, fmt.Sprintf(`,"certificate-authority-data":%q`, base64.StdEncoding.EncodeToString(text))
}

func TestServersAreVerifiedUnderTheirOwnNames(t *testing.T) {
	for _, tc := range []struct {
		name       string
		host       string
		kubeconfig string // more of it
		serverName string
		want       string
	}{
		{name: "by its address", host: "127.0.0.1"},
		{name: "not by that of the kubeconfig", host: "127.0.0.2", want: "certificate is valid for 127.0.0.1, ::1, not 127.0.0.2"},
		{name: "by the name of the kubeconfig", host: "127.0.0.2", kubeconfig: `,"tls-server-name":"example.com"`},
		{name: "by the name given", host: "127.0.0.2", kubeconfig: `,"tls-server-name":"example.net"`, serverName: "example.com"},
		{name: "not by another name", host: "127.0.0.1", serverName: "example.net", want: "not example.net"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := mustServe(t)
			a.put(service("web", 80))
			url, ca := mustServeTLS(t, a, tc.host)
			s := mustNew(t, a, func(c *Config) {
				// The one in the kubeconfig is never asked, and would be right.
				c.Kubeconfig = mustKubeconfig(t, "https://example.com:1/prefix", ca+tc.kubeconfig)
				c.Servers, c.TLSServerName = []string{"https://127.0.0.1:1", url}, tc.serverName
			})
			r := mustStart(t, a, s)
			if tc.want == "" {
				r.until("node node-a ", "service web 80")
				return
			}
			eventually(t, tc.want, func() bool {
				h := s.Health()
				return h.Cause != nil && strings.Contains(h.Cause.Error(), tc.want)
			})
		})
	}
}

func TestAnotherServerTakesOver(t *testing.T) {
	a, b := mustServe(t), mustServe(t)
	a.put(service("web", 80))
	b.put(service("web", 80), service("web", 81))
	servers := []string{"http://" + a.addr, "http://" + b.addr}
	s := mustNew(t, a, func(c *Config) { c.Servers = servers })
	if orderFor("node-a", mustURLs(t, servers...))[0].Host == b.addr {
		a, b = b, a
		a.put(service("web", 80))
		b.put(service("web", 81))
	}
	r := mustStart(t, a, s)
	r.until("node node-a ", "service web 80")
	a.stop()
	r.until("node node-a ", "service web 81")
	b.put(service("web", 82))
	r.until("node node-a ", "service web 82")
}

func TestAConnectionThatTimesOutIsNoContact(t *testing.T) {
	a := mustServe(t)
	s := mustNew(t, a)
	for _, w := range s.watchers {
		w.contact.follow(emptyWatch{})
		if last, _ := w.contact.state(); !last.IsZero() {
			t.Errorf("%s: contact at %v", w.Name, last)
		}
	}
	s.unreachable(errors.New("timeout"))
	if h := s.Health(); h.Cause == nil || h.Cause.Error() != "watch services: timeout" {
		t.Errorf("health %v", h)
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingIsAsked(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := mustKubeconfig(t, "http://127.0.0.1:1", "")
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"node", Config{Kubeconfig: good}, "watch the API server: the name of this node is missing"},
		{"kubeconfig", Config{Node: "a", Kubeconfig: "/nowhere/k"}, "read kubeconfig /nowhere/k: stat /nowhere/k: no such file or directory"},
		{"anything", Config{Node: "a"}, "use the service account of this pod: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined; outside a cluster name a kubeconfig"},
		{"scheme", Config{Node: "a", Kubeconfig: good, Servers: []string{"10.0.0.1"}}, `read API server "10.0.0.1": not of the form https://host:port`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := New(tc.cfg); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	s, err := New(Config{Node: "a", Kubeconfig: good, QPS: 50, Burst: 100})
	if err != nil || s.conn.config.QPS != 50 || s.conn.config.Burst != 100 || s.backoff.Jitter < 0.5 || s.backoff.Cap > time.Minute {
		t.Errorf("got %v, %v", s, err)
	}
}
