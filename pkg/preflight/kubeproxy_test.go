package preflight

import (
	"cmp"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/headgate/headgate/tests/testenv"
)

func TestAKubeProxyIsFoundByItsProcessAndByItsPort(t *testing.T) {
	testenv.Need(t) // in a network of its own
	here := []process{{os.Getpid(), "kube-proxy"}}
	mode := "nftables\n"
	r := &Report{}
	r.kubeProxy(t.Context(), nil)
	r.kubeProxy(t.Context(), here)
	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/proxyMode" {
			_, _ = w.Write([]byte(mode))
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	r.kubeProxy(t.Context(), here)
	r.kubeProxy(t.Context(), nil)
	mode = "headgate"
	r.kubeProxy(t.Context(), nil)
	me := here[0].String()
	wantFound(t, r, "ok kube-proxy: none runs here",
		"warning kube-proxy-runs: "+me+" runs, its mode is not known",
		"warning kube-proxy-runs: "+me+" runs, in mode nftables",
		"warning kube-proxy-runs: something answers as kube-proxy on 127.0.0.1:10249, in mode nftables",
		"ok kube-proxy: none runs here")
}

// k3s and others have a kube-proxy in a process of another name, perhaps with metrics elsewhere.
func TestAKubeProxyIsAskedWhereItServesMetrics(t *testing.T) {
	testenv.Need(t) // in a network of its own
	l, err := net.Listen("tcp", "127.0.0.1:20249")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("iptables")) })}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for metrics, want := range map[string]string{
		"127.0.0.1:20249": "something answers as kube-proxy on 127.0.0.1:20249, in mode iptables", "": "none runs here",
	} {
		if got := findKubeProxy(t.Context(), nil, cmp.Or(metrics, usualMetrics)).String(); got != want {
			t.Errorf("asked at %q: %s, want %s", metrics, got, want)
		}
	}
}
