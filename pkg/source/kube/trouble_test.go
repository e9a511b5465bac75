package kube

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWhyThereIsNoContactIsNamed has every usual reason.
func TestWhyThereIsNoContactIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		alter  func(t *testing.T, a *api, c *Config)
		server string // what the problem names, "" for that of the API server
		reason string
		remedy string
		solve  func(a *api) // nil where only another configuration would
	}{
		{name: "refused", alter: func(_ *testing.T, a *api, _ *Config) { a.stop() }, reason: "refuses connections", remedy: "check that it runs",
			solve: func(a *api) { a.start() }},
		{name: "silent", alter: func(t *testing.T, a *api, c *Config) { c.Servers = []string{mustBeSilent(t)} },
			server: "http://127.0.0.3:", reason: "does not answer", remedy: "check that it runs"},
		{name: "401", alter: refusing(http.StatusUnauthorized), reason: "does not accept the agent's credentials (401)", remedy: "renew the token",
			solve: relenting},
		{name: "403", alter: refusing(http.StatusForbidden), reason: "refuses the agent (403): no, said the test", remedy: "bind the ClusterRole headgate",
			solve: relenting},
		{name: "another authority", alter: func(t *testing.T, a *api, c *Config) {
			url, _ := mustServeTLS(t, a, "127.0.0.1")
			c.Kubeconfig = mustKubeconfig(t, url, "")
		}, server: "https://127.0.0.1:", reason: "has a certificate that the agent does not trust", remedy: "compare the certificate authority"},
		{name: "no such name", alter: func(_ *testing.T, _ *api, c *Config) { c.Servers = []string{"http://no..such:1"} },
			server: "http://no..such:1", reason: "has a name that does not resolve", remedy: "give --api-servers addresses"},
		{name: "placeholder", alter: func(_ *testing.T, _ *api, c *Config) { c.Servers = []string{"https://set-api-servers.invalid:6443"} },
			server: "https://set-api-servers.invalid:6443", reason: "is the placeholder of the manifests", remedy: "set api-servers to the addresses"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := mustServe(t)
			s := mustNew(t, a, func(c *Config) { tc.alter(t, a, c) })
			mustStart(t, a, s)
			server := tc.server
			if server == "" {
				server = "http://" + a.addr
			}
			eventually(t, "a problem", func() bool { return len(s.Health().Problems("node-a", time.Now())) == 1 })
			p := s.Health().Problems("node-a", time.Now())[0]
			if p.Object != "Node node-a" || p.Field != "API server" || !strings.HasPrefix(p.Value, server) ||
				!strings.HasPrefix(p.Reason, tc.reason) || !strings.HasPrefix(p.Remedy, tc.remedy) {
				t.Errorf("got %q\nwant %s, %s, %s", p.Error(), server, tc.reason, tc.remedy)
			}
			if tc.solve == nil {
				return
			}
			tc.solve(a)
			eventually(t, "no problem", func() bool { return s.Health().Problems("node-a", time.Now()) == nil })
			if h := s.Health(); h.Server != server || h.Servers[server] != nil {
				t.Errorf("contact with %q, want %q; servers %v", h.Server, server, h.Servers)
			}
		})
	}
}

func refusing(code int) func(*testing.T, *api, *Config) {
	return func(_ *testing.T, a *api, _ *Config) {
		a.with(func() { a.refusals["services"], a.refusals["endpointslices"] = code, code })
	}
}

func relenting(a *api) { a.with(func() { clear(a.refusals) }) }

// mustBeSilent returns the URL of a server that takes connections and says
// nothing.
func mustBeSilent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

func TestAMomentWithoutContactIsNoProblem(t *testing.T) {
	now := time.Now()
	h := Health{Began: now.Add(-time.Hour), LastContact: now.Add(-patience / 2), Cause: errSilent}
	if p := h.Problems("node-a", now); p != nil {
		t.Errorf("a problem after half the patience: %v", p)
	}
	if p := h.Problems("node-a", now.Add(patience)); len(p) != 1 {
		t.Errorf("after all of it: %v", p)
	}
	if h = (Health{Began: now}); h.Problems("node-a", now.Add(patience/2)) != nil || h.Age(now.Add(time.Second)) != time.Second {
		t.Errorf("the age of no contact is %v, it began a second ago", h.Age(now.Add(time.Second)))
	}
}

func TestEachServerHasAProblemOfItsOwn(t *testing.T) {
	a := mustServe(t)
	a.stop()
	servers := []string{"http://" + a.addr, "https://set-api-servers.invalid:6443"}
	s := mustNew(t, a, func(c *Config) { c.Servers = servers })
	mustStart(t, a, s)
	eventually(t, "two problems", func() bool {
		found := map[string]bool{}
		for _, p := range s.Health().Problems("node-a", time.Now()) {
			found[p.Value] = true
		}
		return len(found) == 2 && found[servers[0]] && found[servers[1]]
	})
	a.start()
	eventually(t, "none", func() bool { return s.Health().Problems("node-a", time.Now()) == nil })
	if up := s.Health().Servers; up[servers[0]] != nil || up[servers[1]] == nil {
		t.Errorf("servers %v", up)
	}
}
