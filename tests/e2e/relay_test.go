package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/tests/controlplane"
)

// relay stands between the agent and the API server. It ends streams and refuses
// requests where a test wants it, and counts what goes through.
type relay struct {
	url     string
	lists   atomic.Int64 // requests for everything of a kind
	expired atomic.Int64 // answers that a revision has expired
	refused atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// newRelay starts a relay on the node.
func (s *stage) newRelay() *relay {
	s.tb.Helper()
	r := &relay{conns: map[net.Conn]bool{}}
	target, err := url.Parse(controlplane.ServerURL)
	if err != nil {
		s.tb.Fatal(err)
	}
	var listener net.Listener
	if err := s.world.node().Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		s.tb.Fatal(err)
	}
	transport := &http.Transport{DialContext: controlplane.Dialer(s.world.node()), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target) },
		FlushInterval:  -1,
		Transport:      transport,
		ModifyResponse: r.look,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
	}
	server := &http.Server{ConnState: r.track, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.refused.Load() {
			panic(http.ErrAbortHandler) // as a server that is not there
		}
		q := req.URL.Query()
		if isStream := q.Get("watch") != ""; !isStream || q.Get("sendInitialEvents") != "" {
			r.lists.Add(1)
		}
		proxy.ServeHTTP(w, req)
	})}
	r.url = "http://" + listener.Addr().String()
	go server.Serve(listener) //nolint:errcheck // it ends with Close
	s.tb.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	return r
}

// track knows the connections of the agent.
func (r *relay) track(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew:
		r.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(r.conns, c)
	}
}

// cut ends every connection, in the middle of whatever it carries.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}

// refuse says whether requests are refused. Connections that there are end then.
func (r *relay) refuse(yes bool) {
	r.refused.Store(yes)
	if yes {
		r.cut()
	}
}

// look counts answers that a revision has expired: as such, or in a stream.
func (r *relay) look(answer *http.Response) error {
	if answer.StatusCode == http.StatusGone {
		r.expired.Add(1)
	}
	answer.Body = &spy{answer.Body, r}
	return nil
}

// spy reads along.
type spy struct {
	io.ReadCloser
	relay *relay
}

func (s *spy) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte("too old resource version")) {
		s.relay.expired.Add(1)
	}
	return n, err
}
