package metrics

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsAnsweredBesideTheMetrics(t *testing.T) {
	all := HandlerConfig{Config: func() any { return map[string]any{"nodeName": "node-1"} }, Profiling: true}
	for _, tc := range []struct {
		name, path  string
		cfg         HandlerConfig
		code        int
		contentType string
		body        string // "" is not compared
	}{
		{"healthz says ok", "/healthz", HandlerConfig{}, 200, "text/plain; charset=utf-8", "ok"},
		{"the mode is Headgate's own", "/proxyMode", HandlerConfig{}, 200, "text/plain; charset=utf-8", "headgate"},
		{"configz shows what runs", "/configz", all, 200, "application/json", `{"nodeName":"node-1"}`},
		{"without a configuration there is no configz", "/configz", HandlerConfig{}, 404, "text/plain; charset=utf-8", ""},
		{"a configuration that is no JSON is an error", "/configz", HandlerConfig{Config: func() any { return math.NaN() }}, 500, "text/plain; charset=utf-8",
			"write the configuration: json: unsupported value: NaN\n"},
		{"profiles are there where wanted", "/debug/pprof/", all, 200, "text/html; charset=utf-8", ""},
		{"so is each of them", "/debug/pprof/goroutine?debug=1", all, 200, "text/plain; charset=utf-8", ""},
		{"and the command line", "/debug/pprof/cmdline", all, 200, "text/plain; charset=utf-8", ""},
		{"elsewhere they are not", "/debug/pprof/", HandlerConfig{}, 404, "text/plain; charset=utf-8", ""},
		{"nothing else is there", "/", all, 404, "text/plain; charset=utf-8", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			New("v1").Handler(tc.cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
			if w.Code != tc.code {
				t.Errorf("answered %d, want %d", w.Code, tc.code)
			}
			got := []string{w.Header().Get("Content-Type"), w.Header().Get("X-Content-Type-Options"), w.Body.String()}
			want := []string{tc.contentType, "nosniff", tc.body}
			if tc.body == "" {
				got[2] = ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheConfigurationIsReadWhenAskedFor(t *testing.T) {
	n := 0
	h := New("v1").Handler(HandlerConfig{Config: func() any { n++; return n }})
	for _, want := range []string{"1", "2"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/configz", nil))
		if got := strings.TrimSpace(w.Body.String()); got != want {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
}
