package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSLIsAreTheLastResultsAndHowOftenTheyCame(t *testing.T) {
	m := New("v1")
	h := m.Handler(HandlerConfig{})
	ask := func(path string) string {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
		return w.Body.String()
	}
	if got := ask("/metrics/slis"); got != "" {
		t.Errorf("before anybody asked:\n%s", got)
	}
	ask("/healthz")
	m.CountHealthz(503)
	m.CountHealthz(200)
	m.CountLivez(200)
	m.CountLivez(503)
	want := `# HELP kubernetes_healthcheck The last result of a health check: 1 is healthy.
# TYPE kubernetes_healthcheck gauge
kubernetes_healthcheck{name="ping",type="healthz"} 1
kubernetes_healthcheck{name="proxy",type="healthz"} 1
kubernetes_healthcheck{name="proxy",type="livez"} 0
# HELP kubernetes_healthchecks_total Results of health checks.
# TYPE kubernetes_healthchecks_total counter
kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1
kubernetes_healthchecks_total{name="proxy",status="error",type="healthz"} 1
kubernetes_healthchecks_total{name="proxy",status="error",type="livez"} 1
kubernetes_healthchecks_total{name="proxy",status="success",type="healthz"} 1
kubernetes_healthchecks_total{name="proxy",status="success",type="livez"} 1
`
	if diff := cmp.Diff(want, ask("/metrics/slis")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
