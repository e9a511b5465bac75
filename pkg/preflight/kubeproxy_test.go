package preflight

import (
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
