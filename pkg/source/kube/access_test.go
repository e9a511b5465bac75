package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// reviewer is an API server that grants rights.
type reviewer struct {
	*httptest.Server
	mu        sync.Mutex
	refused   map[string]bool // such as "list services"
	reviews   int             // what a review is answered with
	version   int
	asked     []string // everything but reviews
	addresses []string // of Services, one on each page
}

func mustReview(tb testing.TB) *reviewer {
	tb.Helper()
	s := &reviewer{refused: map[string]bool{}, reviews: http.StatusCreated, version: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(s.Close)
	return s
}

func (s *reviewer) serve(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.URL.Path == "/version" {
		text := map[string]any{"gitVersion": "v1.36.3"}
		if s.version != http.StatusOK {
			text = nil
		}
		answer(w, s.version, text)
		return
	}
	if strings.HasSuffix(q.URL.Path, "selfsubjectaccessreviews") {
		s.review(w, q)
		return
	}
	verb := map[string]string{"GET": "list", "POST": "create", "PATCH": "patch"}[q.Method]
	if q.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	s.asked = append(s.asked, verb+" "+q.URL.String())
	resource := regexp.MustCompile(`services|endpointslices|nodes|servicecidrs|pods|events`).FindString(q.URL.Path)
	switch {
	case s.refused[verb+" "+resource]:
		answer(w, http.StatusForbidden, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403})
	case verb == "create":
		answer(w, http.StatusUnprocessableEntity, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
	case verb == "patch":
		answer(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	default:
		s.list(w, q.URL.Query().Get("continue"))
	}
}

func (s *reviewer) review(w http.ResponseWriter, q *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		answer(w, http.StatusBadRequest, nil)
		return
	}
	about := review["spec"].(map[string]any)["resourceAttributes"].(map[string]any)
	what := about["verb"].(string) + " " + about["resource"].(string)
	review["status"] = map[string]any{"allowed": !s.refused[what]}
	if s.reviews != http.StatusCreated {
		review = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
	}
	answer(w, s.reviews, review)
}

// list answers with one Service on each page.
func (s *reviewer) list(w http.ResponseWriter, page string) {
	at := len(page)
	meta, items := map[string]any{}, []any{}
	if at < len(s.addresses) {
		items = append(items, map[string]any{"metadata": map[string]any{"namespace": "kube-system", "name": "dns"},
			"spec": map[string]any{"clusterIPs": []string{s.addresses[at]}}})
	}
	if at+1 < len(s.addresses) {
		meta["continue"] = page + "x"
	}
	answer(w, http.StatusOK, map[string]any{"metadata": meta, "items": items})
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func mustVisit(tb testing.TB, url string, servers ...string) (*Visitor, []Answer) {
	tb.Helper()
	v, answers, err := Visit(tb.Context(), Config{Node: "node-a", Kubeconfig: mustKubeconfig(tb, url, ""), Servers: servers})
	if err != nil {
		tb.Fatal(err)
	}
	return v, answers
}

func lacking(tb testing.TB, v *Visitor) []string {
	tb.Helper()
	all, err := v.Lacks(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var words []string
	for _, r := range all {
		words = append(words, r.String())
	}
	return words
}

func TestRightsThatAreMissingAreNamed(t *testing.T) {
	s := mustReview(t)
	v, answers := mustVisit(t, s.URL)
	if diff := cmp.Diff([]Answer{{Server: s.URL, Version: "v1.36.3"}}, answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if got := lacking(t, v); got != nil {
		t.Errorf("lacks %q where everything is granted", got)
	}
	s.refused["watch endpointslices"], s.refused["patch events"] = true, true
	if diff := cmp.Diff([]string{"watch endpointslices.discovery.k8s.io", "patch events.events.k8s.io"}, lacking(t, v)); diff != "" {
		t.Errorf("lacks (-want +got):\n%s", diff)
	}
	if s.asked != nil {
		t.Errorf("tried %q beside the reviews", s.asked)
	}
}

func TestWithoutReviewsRightsAreTriedWithoutAChange(t *testing.T) {
	s := mustReview(t)
	s.reviews = http.StatusForbidden
	v, _ := mustVisit(t, s.URL)
	if got := lacking(t, v); got != nil {
		t.Errorf("lacks %q where everything is granted", got)
	}
	want := []string{
		"list /api/v1/services?limit=1", "watch /api/v1/services?timeoutSeconds=1&watch=1",
		"list /apis/discovery.k8s.io/v1/endpointslices?limit=1", "watch /apis/discovery.k8s.io/v1/endpointslices?timeoutSeconds=1&watch=1",
		"list /api/v1/nodes?limit=1", "watch /api/v1/nodes?timeoutSeconds=1&watch=1",
		"list /apis/networking.k8s.io/v1/servicecidrs?limit=1", "watch /apis/networking.k8s.io/v1/servicecidrs?timeoutSeconds=1&watch=1",
		"create /apis/events.k8s.io/v1/namespaces/default/events?dryRun=All", "patch /apis/events.k8s.io/v1/namespaces/default/events/headgate-check?dryRun=All",
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	for _, what := range []string{"list services", "watch nodes", "create events", "patch events"} {
		s.refused[what] = true
	}
	if diff := cmp.Diff([]string{"list services", "watch nodes", "create events.events.k8s.io", "patch events.events.k8s.io"}, lacking(t, v)); diff != "" {
		t.Errorf("lacks (-want +got):\n%s", diff)
	}
}

func TestEachServerIsAskedAndSaidWhatIsWrongWithIt(t *testing.T) {
	s, bad := mustReview(t), mustReview(t)
	bad.version = http.StatusUnauthorized
	v, answers := mustVisit(t, "http://127.0.0.1:1", "http://127.0.0.1:1", bad.URL, s.URL, "https://set-api-servers.invalid:6443")
	var got []string
	for _, a := range answers {
		line := a.Server + " " + a.Version
		if a.Problem != nil {
			line = a.Problem.Error()
		}
		got = append(got, line)
	}
	want := []string{
		`Node node-a: API server "http://127.0.0.1:1": refuses connections; check that it runs, and listens at this address and port`,
		`Node node-a: API server "` + bad.URL + `": does not accept the agent's credentials (401); renew the token or certificate of the kubeconfig, or the ServiceAccount of the pod`,
		s.URL + " v1.36.3",
		`Node node-a: API server "https://set-api-servers.invalid:6443": is the placeholder of the manifests, not a server; set api-servers to the addresses of the API servers, such as https://192.0.2.1:6443`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if got := lacking(t, v); got != nil {
		t.Errorf("the server that answers lacks %q", got)
	}
	s.version = http.StatusForbidden // as where anonymous users may not ask
	if _, answers := mustVisit(t, s.URL); answers[0].Problem != nil || answers[0].Version != "" {
		t.Errorf("a server that keeps its version for itself: %+v", answers[0])
	}
}

func TestAllPagesOfServicesAreRead(t *testing.T) {
	s := mustReview(t)
	s.addresses = []string{"10.96.0.10", "fd00::10", "None"}
	v, _ := mustVisit(t, s.URL)
	got, err := v.ClusterIPs(t.Context())
	want := []ClusterIP{{"10.96.0.10", "kube-system/dns"}, {"fd00::10", "kube-system/dns"}, {"None", "kube-system/dns"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	s.refused["list services"] = true
	if _, err := v.ClusterIPs(t.Context()); err == nil {
		t.Error("a list that is refused is no error")
	}
}

func TestAKubeconfigThatIsMissingIsAnError(t *testing.T) {
	if _, _, err := Visit(t.Context(), Config{Node: "node-a", Kubeconfig: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "read kubeconfig /nowhere") {
		t.Errorf("the error is %v", err)
	}
}

// What an agent does, deploy/ grants. It grants one more: kube-proxy's role has it, too.
func TestTheManifestsGrantTheRights(t *testing.T) {
	for _, tc := range []struct {
		file string
		pods bool
	}{{"base/rbac.yaml", false}, {"helm/headgate/templates/rbac.yaml", true}} {
		want := []string{"get nodes"}
		for _, r := range Rights(Config{Node: "node-a", Pods: tc.pods}) {
			want = append(want, r.String())
		}
		got := granted(t, "../../../deploy/"+tc.file)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-rights +granted):\n%s", tc.file, diff)
		}
	}
}

// granted returns what the ClusterRole in a file grants, whatever the conditions of a template.
func granted(tb testing.TB, file string) (all []string) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	plain := regexp.MustCompile(`(?m)^.*\{\{.*\n`).ReplaceAllString(string(text), "")
	for part := range strings.SplitSeq(plain, "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(part), &role); err != nil || role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				name := strings.TrimSuffix(rule.Resources[0]+"."+rule.APIGroups[0], ".")
				all = append(all, verb+" "+name)
			}
		}
	}
	return all
}
