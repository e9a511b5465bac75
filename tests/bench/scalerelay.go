package main

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/tests/controlplane"
)

// relay stands between the agent and the API server and notes when an event of
// EndpointSlices is handed to the agent.
type relay struct {
	url      string
	server   *http.Server
	upstream *http.Transport
	armed    atomic.Bool
	at       atomic.Int64 // since epoch, in ns
}

func (s *scaled) newRelay() (*relay, error) {
	target, err := url.Parse(controlplane.ServerURL)
	if err != nil {
		return nil, err
	}
	var listener net.Listener
	err = s.node().Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &relay{url: "http://" + listener.Addr().String(), upstream: &http.Transport{
		DialContext: controlplane.Dialer(s.node()), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, FlushInterval: -1, Transport: r.upstream}
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/endpointslices") {
			w = &stamper{w, r}
		}
		proxy.ServeHTTP(w, req)
	})}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

func (r *relay) close() {
	_ = r.server.Close()
	r.upstream.CloseIdleConnections()
}

// arm has the time of the next event noted.
func (r *relay) arm() {
	r.at.Store(0)
	r.armed.Store(true)
}

// stamp returns when the event was handed on.
func (r *relay) stamp() (time.Time, bool) {
	at := r.at.Load()
	return epoch.Add(time.Duration(at)), at != 0
}

// stamper notes when the first bytes of an event are written.
type stamper struct {
	http.ResponseWriter
	relay *relay
}

// Write is that of http.ResponseWriter.
func (s *stamper) Write(p []byte) (int, error) {
	if s.relay.armed.CompareAndSwap(true, false) {
		s.relay.at.Store(clock())
	}
	return s.ResponseWriter.Write(p)
}

// Flush sends what is written at once.
func (s *stamper) Flush() {
	if err := http.NewResponseController(s.ResponseWriter).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		panic(http.ErrAbortHandler) // the agent is gone
	}
}
