package preflight

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/tests/testenv"
)

// mustServe returns an API server that has two Services, and refuses some rights.
func mustServe(tb testing.TB, refused ...string) string {
	tb.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
		case strings.HasSuffix(q.URL.Path, "selfsubjectaccessreviews"):
			var review map[string]any
			if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
				tb.Error(err)
			}
			text, err := json.Marshal(review)
			allowed := err == nil
			for _, word := range refused {
				allowed = allowed && !strings.Contains(string(text), `"`+word+`"`)
			}
			review["status"] = map[string]any{"allowed": allowed}
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(review)
		default:
			_, _ = w.Write([]byte(`{"items":[{"metadata":{"namespace":"default","name":"web"},"spec":{"clusterIPs":["10.96.0.99","None"]}},` +
				`{"metadata":{"namespace":"kube-system","name":"kube-dns"},"spec":{"clusterIPs":["10.96.0.10","fd00:96::10"]}}]}`))
		}
	}))
	tb.Cleanup(s.Close)
	return s.URL
}

func mustConfig(tb testing.TB, url string) *kube.Config {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + url + `"}}],"users":[{"name":"u","user":{"token":"t"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &kube.Config{Node: "node-a", Kubeconfig: file}
}

func TestAClusterThatGrantsEverythingIsOK(t *testing.T) {
	testenv.Need(t)
	url := mustServe(t)
	r := &Report{}
	r.source(t.Context(), Config{Kube: mustConfig(t, url)})
	wantFound(t, r, "ok api-server: "+url+" answers: Kubernetes v1.36.3", "ok rights: the API server grants all 10",
		"ok cluster-ips: none of 4 is an address of this node")
}

func TestAClusterIPOnADeviceIsOfACacheThatWouldBePassedBy(t *testing.T) {
	testenv.AddAddress(t, "10.96.0.10")
	testenv.AddAddress(t, "fd00:96::10")
	url := mustServe(t)
	r := &Report{}
	r.source(t.Context(), Config{Kube: mustConfig(t, url)})
	wantFound(t, r, "ok api-server: "+url+" answers: Kubernetes v1.36.3", "ok rights: the API server grants all 10",
		"warning cluster-ip-local: 10.96.0.10 of Service kube-system/kube-dns is an address of this node",
		"warning cluster-ip-local: fd00:96::10 of Service kube-system/kube-dns is an address of this node")
}

func TestRightsWithoutWhichNothingWorksAreAFailure(t *testing.T) {
	testenv.Need(t)
	url := mustServe(t, "watch", "patch")
	r := &Report{}
	r.source(t.Context(), Config{Kube: mustConfig(t, url)})
	wantFound(t, r, "ok api-server: "+url+" answers: Kubernetes v1.36.3",
		"failure rights-missing: the API server does not grant: watch services, watch endpointslices.discovery.k8s.io",
		"warning rights-fewer: the API server does not grant: watch nodes, watch servicecidrs.networking.k8s.io, patch events.events.k8s.io",
		"ok cluster-ips: none of 4 is an address of this node")
}

func TestASourceThatCannotBeUsedIsAFailure(t *testing.T) {
	r := &Report{}
	r.source(t.Context(), Config{Kube: mustConfig(t, "http://127.0.0.1:1")})
	r.source(t.Context(), Config{Kube: &kube.Config{Node: "node-a", Kubeconfig: "/nowhere"}})
	r.source(t.Context(), Config{Manifests: func() error { return errors.New("no such folder; make one") }})
	r.source(t.Context(), Config{Manifests: func() error { return nil }})
	r.source(t.Context(), Config{})
	wantFound(t, r, "failure api-server: http://127.0.0.1:1 refuses connections",
		"failure source-wrong: read kubeconfig /nowhere: stat /nowhere: no such file or directory",
		"failure source-wrong: no such folder", "ok source: the directory of YAML can be read",
		"warning source-none: no cluster and no directory was named")
	for i, want := range []string{"check that it runs, and listens at this address and port", "mend it, or name another one", "make one"} {
		if got := r.Findings[i].Remedy; got != want {
			t.Errorf("finding %d has the remedy %q, want %q", i, got, want)
		}
	}
	if r.Failures != 3 || r.Warnings != 1 {
		t.Errorf("%d failures and %d warnings, want 3 and 1", r.Failures, r.Warnings)
	}
}
