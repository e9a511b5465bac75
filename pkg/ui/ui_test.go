package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// fake is a node whose numbers grow with each look.
type fake struct {
	services []Service
	avoided  []Avoided
	flows    []Flow
	looks    int
	err      error
}

func (f *fake) Status(context.Context) (Status, error) {
	return Status{Node: "node-a", Degraded: []string{}, Text: Text{{"headgate", "v1.2.3 on node-a: WELL"}}}, f.err
}

func (f *fake) Look(context.Context) (Look, error) {
	f.looks++
	return Look{Services: append([]Service{}, f.services...), Backends: 3 * len(f.services), Avoided: f.avoided, FailedPerSecond: new(float64)}, f.err
}

func (f *fake) Follow(name string) Follower { return &fakeFollower{f, name} }

func (f *fake) Explain(_ context.Context, name, from string) ([]Text, error) {
	if from != "" && from != "192.0.2.1" {
		return nil, BadRequest{errors.New("--from: not an address")}
	}
	return []Text{{{"client", from}, {"frontend", "10.96.0.10:80/TCP, ClusterIP of " + name}, {"", "50.0%  10.244.1.1:8080/TCP"}, {"outcome", "connect() goes straight to one of the backends"}}}, nil
}

type fakeFollower struct {
	*fake
	name string
}

func (f *fakeFollower) Client(a netip.Addr) Client { return Client{Address: a.String(), Local: true} }

func (f *fakeFollower) Read(_ context.Context, each func(Flow)) (Detail, error) {
	for i, s := range f.services {
		if s.Name != f.name {
			continue
		}
		d := Detail{Service: s}
		for b := range s.Backends {
			one := Backend{Backend: fmt.Sprintf("10.244.%d.%d:8080/TCP", i%250, b+1), Pod: fmt.Sprintf("%s/%s-%d", s.Namespace, s.Service, b), Node: "node-b", Zone: "zone-" + string(rune('a'+b%3)), State: "ready", Health: "ok", Well: true, PerSecond: of(10)}
			if b < s.Avoided {
				one.Well, one.Health, one.State, one.PerSecond = false, "ejected for 5s", "ejected", of(0)
			}
			d.Backends = append(d.Backends, one)
		}
		for _, one := range f.flows {
			each(one)
		}
		return d, nil
	}
	return Detail{}, ErrNoService
}

func of(rate float64) *float64 { return &rate }

// hostile is a name that is markup.
const hostile = `<img src=x onerror="document.title='owned'">`

func some(n int) (all []Service) {
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		s := Service{
			Name: "shop/" + name + ":http/TCP", Namespace: "shop", Service: name, Port: "http/TCP", Algorithm: "random", Backends: 2,
			Frontends: []lb.AddrPort{{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}},
			PerSecond: of(float64(i)), RefusedPerSecond: of(0), InFlight: uint32(n - i),
		}
		all = append(all, s)
	}
	return all
}

// get asks as a browser does, and reads what is answered.
func get(t *testing.T, h http.Handler, path string, into any) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:10247"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v in %s", path, err, w.Body)
		}
	}
	return w.Result()
}

func TestOnlyThisMachineIsAnswered(t *testing.T) {
	h := New(&fake{})
	for host, want := range map[string]int{
		"127.0.0.1:10247": 200, "127.0.0.1": 200, "localhost:8080": 200, "LOCALHOST": 200, "[::1]:10247": 200, "[::1]": 200, "127.9.9.9:1": 200,
		"": 403, "evil.example": 403, "localhost.evil.example:10247": 403, "192.0.2.1:10247": 403, "127.0.0.1.evil.example": 403, "[fd00::1]:80": 403, "0.0.0.0:10247": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/node", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Host %q: status %d, want %d", host, w.Code, want)
		}
	}
	for site, want := range map[string]int{"": 200, "none": 200, "same-origin": 200, "cross-site": 403, "same-site": 403} {
		r := httptest.NewRequest(http.MethodGet, "/api/node", nil)
		r.Host = "127.0.0.1:10247"
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Sec-Fetch-Site %q: status %d, want %d", site, w.Code, want)
		}
	}
}

func TestNothingCanBeChanged(t *testing.T) {
	h := New(&fake{services: some(1)})
	for _, path := range []string{"/", "/ui.css", "/ui.js", "/api/node", "/api/services", "/api/service", "/api/explain"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "PATCH"} {
			r := httptest.NewRequest(method, path, nil)
			r.Host = "localhost"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: status %d, want 405", method, path, w.Code)
			}
		}
	}
}

func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	h := New(&fake{})
	for path, kind := range map[string]string{"/": "text/html", "/ui.css": "text/css", "/ui.js": "text/javascript"} {
		resp := get(t, h, path, nil)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(got, kind) {
			t.Errorf("%s: status %d, type %q", path, resp.StatusCode, got)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, want)
			}
		}
		text, err := files.ReadFile("page/" + strings.Replace(strings.TrimPrefix(path, "/"), "", "index.html", 1))
		if path != "/" {
			text, err = files.ReadFile("page" + path)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{"https://", "@import", "innerHTML", "style=\""} {
			if strings.Contains(string(text), url) {
				t.Errorf("%s has %q", path, url)
			}
		}
	}
	if resp := get(t, h, "/nothing", nil); resp.StatusCode != 404 {
		t.Errorf("/nothing: status %d", resp.StatusCode)
	}
}

func TestOnlyWhatIsVisibleIsSent(t *testing.T) {
	all := some(1000)
	all[7].Avoided, all[3].Backends = 1, 0
	all[500].RefusedPerSecond = of(2)
	h := New(&fake{services: all})
	for query, want := range map[string][]string{
		"count=4":                    {"web-500", "web-7", "web-3", "web-0"}, // in trouble, the worst first
		"count=2&from=998&sort=name": {"web-998", "web-999"},
		"count=2&sort=connections&descending=true": {"web-999", "web-998"},
		"count=2&sort=in-flight":                   {"web-999", "web-998"},
		"count=1&sort=refused&descending=true":     {"web-500"},
		"count=1&sort=backends":                    {"web-3"},
		"count=2&sort=name&descending=true":        {"web-999", "web-998"},
		"search=SHOP+web-77&sort=name&count=3":     {"web-77", "web-770", "web-771"},
		"search=10.96.1.4:80":                      {"web-260"},
		"search=nothing":                           nil,
		"from=5000":                                nil,
	} {
		var p page
		resp := get(t, h, "/api/services?"+query, &p)
		var got []string
		for _, r := range p.Rows {
			got = append(got, r.Service.Service)
		}
		if diff := cmp.Diff(want, got); diff != "" || resp.StatusCode != 200 || p.Total != 1000 {
			t.Errorf("%s: status %d, total %d (-want +got):\n%s", query, resp.StatusCode, p.Total, diff)
		}
	}
	var p page
	get(t, h, "/api/services?count=1000000", &p)
	if len(p.Rows) != mostRows {
		t.Errorf("%d rows at once, want %d", len(p.Rows), mostRows)
	}
}

func TestWhatCannotBeAnsweredIsSaid(t *testing.T) {
	h := New(&fake{services: some(1)})
	for path, want := range map[string]string{
		"/api/services?sort=colour":                         `400 sort="colour": write one of backends, connections, in-flight, name, refused, state`,
		"/api/services?from=-1":                             `400 from="-1": write a whole number, such as 0 or 100`,
		"/api/services?count=x":                             `400 count="x": write a whole number, such as 0 or 100`,
		"/api/services?search=" + strings.Repeat("x", 201):  "400 search=" + lb.Quote(strings.Repeat("x", 201)) + ": write 200 bytes at the most",
		"/api/service?name=no/body":                         "404 " + ErrNoService.Error(),
		"/api/service":                                      "404 " + ErrNoService.Error(),
		"/api/explain?name=shop/web-0:http/TCP&from=nobody": "400 --from: not an address",
	} {
		var said struct{ Error string }
		resp := get(t, h, path, &said)
		if got := fmt.Sprint(resp.StatusCode, " ", said.Error); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	broken := New(&fake{err: errors.New("headgate is not loaded\x1b[31m")})
	var said struct{ Error string }
	if resp := get(t, broken, "/api/node", &said); resp.StatusCode != 503 || said.Error != "headgate is not loaded [31m" {
		t.Errorf("status %d, %q", resp.StatusCode, said.Error)
	}
}

func TestNamesAreNeverMarkup(t *testing.T) {
	all := some(1)
	all[0].Name, all[0].Service = hostile, hostile
	h := New(&fake{services: all})
	for _, path := range []string{"/api/services", "/api/service?name=" + strings.NewReplacer(" ", "%20", `"`, "%22", "<", "%3C", ">", "%3E").Replace(hostile)} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if body := w.Body.String(); w.Code != 200 || strings.ContainsAny(body, "<>") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, %s", path, w.Code, body)
		}
	}
}

// However many pages are open, and however often they ask, the node is read once a second.
func TestPagesShareWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{services: some(3)}
		h := New(f)
		for range 10 {
			get(t, h, "/api/node", nil)
			get(t, h, "/api/services", nil)
		}
		time.Sleep(lookEvery)
		get(t, h, "/api/node", nil)
		if f.looks != 2 {
			t.Errorf("read %d times, want 2", f.looks)
		}
	})
}

func TestTroubleOutlastsTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{services: some(2)}
		h := New(f)
		f.services[1].RefusedPerSecond = of(1)
		states := func() (out []string) {
			var p page
			get(t, h, "/api/services?sort=name", &p)
			for _, r := range p.Rows {
				out = append(out, r.State)
			}
			return out
		}
		if diff := cmp.Diff([]string{stateWell, stateRefusing}, states()); diff != "" {
			t.Error(diff)
		}
		f.services[1].RefusedPerSecond = of(0)
		time.Sleep(troubleFor - time.Second)
		if diff := cmp.Diff([]string{stateWell, stateRefusing}, states()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(2 * time.Second)
		if diff := cmp.Diff([]string{stateWell, stateWell}, states()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEjectionsBecomeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{services: some(1)}
		h := New(f)
		said := func() (out []string) {
			var o overview
			get(t, h, "/api/node", &o)
			for _, e := range o.Events {
				out = append(out, fmt.Sprintf("%d %s one=%v ended=%v %v", e.ID, e.Backend, e.OneClient, e.Ended, time.Since(e.At)))
			}
			time.Sleep(time.Second)
			return out
		}
		if got := said(); got != nil {
			t.Errorf("nothing happened, and there is %q", got)
		}
		f.avoided = []Avoided{{Backend: "a", OneClient: true, Since: time.Now()}}
		said()
		f.avoided = []Avoided{{Backend: "a", Since: time.Now()}}
		said()
		f.avoided = nil
		said()
		want := []string{"4 a one=false ended=true 1s", "3 a one=false ended=false 2s", "2 a one=true ended=true 2s", "1 a one=true ended=false 3s"}
		if diff := cmp.Diff(want, said()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		f.avoided = []Avoided{{Backend: "b", Since: time.Now().Add(-4500 * time.Millisecond)}}
		said()
		if diff := cmp.Diff([]string{"4 a one=false ended=true 3s", "3 a one=false ended=false 4s", "2 a one=true ended=true 4s", "1 a one=true ended=false 5s", "5 b one=false ended=false 5.5s"}, said()); diff != "" {
			t.Errorf("events with an older one (-want +got):\n%s", diff)
		}
		for range 2 * eventsKept {
			f.avoided = append([]Avoided{}, Avoided{Backend: fmt.Sprint(time.Now().UnixNano())})
			time.Sleep(time.Second)
			get(t, h, "/api/node", nil)
		}
		if got := len(said()); got != eventsKept {
			t.Errorf("%d events are kept, want %d", got, eventsKept)
		}
	})
}

func TestAServiceIsForgottenThatNobodyLooksAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(&fake{services: some(2)})
		for _, name := range []string{"shop/web-0:http/TCP", "no/such"} {
			_, _ = n.service(t.Context(), name)
		}
		if len(n.followed) != 1 {
			t.Errorf("%d are followed, want that which there is", len(n.followed))
		}
		time.Sleep(followFor)
		if _, err := n.service(t.Context(), "shop/web-1:http/TCP"); err != nil || len(n.followed) != 1 {
			t.Errorf("%d are followed, %v", len(n.followed), err)
		}
	})
}

// slow is a node that takes its time, and notes whether its context has ended.
type slow struct {
	fake
	begun, goOn chan struct{}
	ended       error
}

func (s *slow) Look(ctx context.Context) (Look, error) {
	close(s.begun)
	<-s.goOn
	s.ended = ctx.Err()
	return s.fake.Look(ctx)
}

// What is read is for all who look, also where the one who asked first has gone. Nobody waits who has.
func TestWhoHasGoneEndsNoLookOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slow{fake: fake{services: some(2)}, begun: make(chan struct{}), goOn: make(chan struct{})}
		n := newNode(source)
		first, firstGoes := context.WithCancel(t.Context())
		second, secondGoes := context.WithCancel(t.Context())
		looked, waited := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := n.overview(first)
			looked <- err
		}()
		<-source.begun
		go func() {
			_, err := n.explain(second, "shop/web-0:http/TCP", "")
			waited <- err
		}()
		firstGoes()
		secondGoes()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("who waits and goes gets %v", err)
		}
		close(source.goOn)
		if err := <-looked; err != nil || source.ended != nil {
			t.Errorf("the look ends with %v, its context with %v", err, source.ended)
		}
		if _, err := n.overview(first); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone before is looked for: %v", err)
		}
		if o, err := n.overview(t.Context()); err != nil || o.Services != 2 || source.looks != 1 {
			t.Errorf("others see %d Services by %d looks, %v, want 2 by the one", o.Services, source.looks, err)
		}
	})
}

func TestOnlyTheTokenOpensThePage(t *testing.T) {
	h := WithToken("right", New(&fake{}))
	get := func(host, path, cookie, value string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: cookie, Value: value})
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	const here = "127.0.0.1:10247"
	for _, c := range []struct {
		host, path, cookie, value string
		want                      int
	}{
		{here, "/", "", "", 403},
		{here, "/ui.js", "", "", 403},
		{here, "/api/node", "", "", 403},
		{here, "/?token=wrong", "", "", 403},
		{here, "/?token=", "headgate-ui-10247", "", 403},
		{here, "/api/node", "headgate-ui-10247", "wrong", 403},
		{here, "/api/node", "headgate-ui-1", "right", 403},
		{"evil.example", "/?token=right", "", "", 403},
		{"evil.example", "/api/node", "headgate-ui-", "right", 403},
		{here, "/?token=right", "", "", 303},
		{here, "/api/node", "headgate-ui-10247", "right", 200},
	} {
		got := get(c.host, c.path, c.cookie, c.value)
		if got.StatusCode != c.want {
			t.Errorf("%s%s with %s=%s: %d, want %d", c.host, c.path, c.cookie, c.value, got.StatusCode, c.want)
		}
		if cookies := got.Cookies(); len(cookies) > 0 != (c.want == 303) {
			t.Errorf("%s%s sets cookies %v", c.host, c.path, cookies)
		}
	}
	set := get(here, "/?token=right", "", "")
	if c := set.Cookies()[0]; c.Name != "headgate-ui-10247" || c.Value != "right" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || set.Header.Get("Location") != "/" {
		t.Errorf("it sets %v and leads to %s", c, set.Header.Get("Location"))
	}
}
