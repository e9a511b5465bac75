package kube

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// keeps says in which file servers are kept.
func keeps(file string) func(*Config) { return func(c *Config) { c.ServersFile = file } }

func TestAServerThatWasGoodIsAskedWhenAllOthersAreGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "servers")
	good, gone := mustServe(t), mustServe(t)
	good.put(service("web", 80))
	t.Run("an agent that hears of it", func(t *testing.T) {
		r := mustStart(t, good, mustNew(t, good, keeps(file)))
		r.until("node node-a ", "service web 80")
	})
	gone.stop()
	t.Run("one that was told of another", func(t *testing.T) {
		r := mustStart(t, gone, mustNew(t, gone, keeps(file)))
		r.until("node node-a ", "service web 80")
		good.put(service("more", 81))
		r.until("node node-a ", "service more 81", "service web 80")
	})
	t.Run("and one that was told of several", func(t *testing.T) {
		r := mustStart(t, gone, mustNew(t, gone, keeps(file), func(c *Config) { c.Servers = []string{"http://" + gone.addr, "http://127.0.0.1:1"} }))
		r.until("node node-a ", "service more 81", "service web 80")
	})
	t.Run("but not one that keeps nothing", func(t *testing.T) {
		s := mustNew(t, gone)
		mustStart(t, gone, s)
		eventually(t, "a failure", func() bool { return s.Health().Cause != nil })
		if s.Health().Synced {
			t.Error("it has found a server")
		}
	})
}

func TestTheServersThatTheClusterNamesAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers")
	l := newLastGood(file, "https", func(err error) { t.Error(err) })
	slice := func(name string, ready bool, addrs ...string) lb.Update {
		s := &lb.Slice{SliceName: lb.SliceName{Namespace: "default", Name: name}, Service: "kubernetes",
			Ports: []lb.SlicePort{{Name: "https", Protocol: lb.TCP, Port: 6443}}}
		for _, a := range addrs {
			s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: netip.MustParseAddr(a), Ready: ready})
		}
		return lb.Update{Slices: map[lb.SliceName]*lb.Slice{s.SliceName: s}}
	}
	want := func(when string, servers ...string) {
		t.Helper()
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := `["` + strings.Join(servers, `","`) + `"]` + "\n"
		if diff := cmp.Diff(text, string(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		var again []string
		for _, u := range newLastGood(file, "https", nil).servers() {
			again = append(again, u.String())
		}
		if diff := cmp.Diff(servers, again); diff != "" {
			t.Errorf("%s, read again (-want +got):\n%s", when, diff)
		}
	}
	l.take(slice("kubernetes", true, "192.0.2.2", "192.0.2.1"))
	want("named", "https://192.0.2.1:6443", "https://192.0.2.2:6443")
	l.take(slice("six", true, "2001:db8::1"))
	l.take(slice("down", false, "192.0.2.9"))
	l.take(lb.Update{Slices: map[lb.SliceName]*lb.Slice{{Namespace: "other", Name: "kubernetes"}: {Service: "kubernetes",
		Ports: []lb.SlicePort{{Protocol: lb.TCP, Port: 1}}, Endpoints: []lb.Endpoint{{Addr: netip.MustParseAddr("192.0.2.66"), Ready: true}}}}})
	want("of both families", "https://192.0.2.1:6443", "https://192.0.2.2:6443", "https://[2001:db8::1]:6443")
	l.answer("https", "lb.example:443")
	want("and who answered", "https://lb.example:443", "https://192.0.2.1:6443", "https://192.0.2.2:6443", "https://[2001:db8::1]:6443")
	l.take(lb.Update{Slices: map[lb.SliceName]*lb.Slice{{Namespace: "default", Name: "six"}: nil}})
	l.take(slice("kubernetes", true, "192.0.2.2"))
	want("one has gone", "https://lb.example:443", "https://192.0.2.2:6443")
	l.answer("https", "10.96.0.1:443")
	l.take(lb.Update{Services: map[lb.ServiceName]*lb.Service{apiService: {ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}}})
	want("the Service itself is none", "https://192.0.2.2:6443")
	l.take(slice("kubernetes", true))
	want("none is named any more", "https://192.0.2.2:6443") // the file stays
	l = newLastGood(file, "https", func(err error) { t.Error(err) })
	l.take(slice("kubernetes", true, "192.0.2.3"))
	want("another agent hears of others", "https://192.0.2.3:6443")
}

func TestAFileThatMakesNoSenseIsNoHelp(t *testing.T) {
	for _, text := range []string{"", "{", "[1]", `["ftp://a","https://a/path",""]`} {
		file := filepath.Join(t.TempDir(), "servers")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := newLastGood(file, "https", nil).servers(); len(got) > 0 {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

func TestTheAddressOfTheServiceItselfComesLast(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	file := filepath.Join(t.TempDir(), "servers")
	if err := os.WriteFile(file, []byte(`["https://192.0.2.1:6443"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := newLastGood(file, "https", func(err error) { t.Error(err) })
	f := &fleet{refusing: map[string]bool{}, failing: map[string]bool{}}
	ask := func(servers ...string) string {
		t.Helper()
		f.asked = nil
		rt := &failover{base: f, servers: mustURLs(t, servers...), kept: kept, states: newServerStates(), report: func(error) {}, back: func() {}}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.96.0.1:443/api", nil)
		req.Host = ""
		_, _ = rt.RoundTrip(req)
		return strings.Join(f.asked, " ")
	}
	if got := ask(); got != "192.0.2.1:6443" {
		t.Errorf("asked %s", got)
	}
	f.refusing["192.0.2.1:6443"] = true
	if got := ask(); got != "192.0.2.1:6443 10.96.0.1:443" {
		t.Errorf("asked %s", got)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1") // the name of a server in its place
	if newLastGood(file, "https", nil).isVirtual("192.0.2.1") {
		t.Error("a server that was good counts as the Service")
	}
	if newLastGood("", "https", nil).isVirtual("192.0.2.1") {
		t.Error("what is unknown counts as the Service")
	}
	kept.take(lb.Update{Services: map[lb.ServiceName]*lb.Service{apiService: {ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}}})
	f.refusing["10.96.0.2:6443"], f.refusing["192.0.2.1:6443"] = true, false
	if got := ask("https://10.96.0.2:6443"); got != "10.96.0.2:6443 192.0.2.1:6443" {
		t.Errorf("asked %s: whoever names servers does not mean the Service", got)
	}
}

func TestThePathOfAProxyIsNotTakenToOtherServers(t *testing.T) {
	a := mustServe(t)
	s := mustNew(t, a, func(c *Config) { c.Kubeconfig = mustKubeconfig(t, "https://proxy.example/clusters/one", "") })
	if s.conn.kept != nil {
		t.Error("servers are kept")
	}
}

func TestAnUpdateTellsWhichServersThereAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers")
	a := mustServe(t)
	es := endpoints("kubernetes", "kubernetes", "192.0.2.1")
	es.Ports[0].Port = new(int32(6443))
	a.put(es, service("kubernetes", 443, func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.1" }))
	r := mustStart(t, a, mustNew(t, a, keeps(file)))
	r.until("node node-a ", "service kubernetes 443", "slice kubernetes of kubernetes: 192.0.2.1")
	want := `["http://` + a.addr + `","http://192.0.2.1:6443"]` + "\n"
	eventually(t, want, func() bool { body, err := os.ReadFile(file); return err == nil && string(body) == want })
}
