package kube

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// Requests is told of every request to an API server. Its methods may be called
// from anywhere.
type Requests interface {
	// Requested says how a request ended: with an HTTP status, or "<error>".
	Requested(method, host, code string, took time.Duration)
	// Throttled says how long a request waited for its turn.
	Throttled(method, host string, took time.Duration)
}

// measured tells of requests, of each try by itself. A watch ends with its first
// answer.
type measured struct {
	base http.RoundTripper
	to   Requests
}

// RoundTrip is that of http.RoundTripper.
func (m *measured) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := m.base.RoundTrip(req)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	m.to.Requested(req.Method, req.URL.Host, code, time.Since(began))
	return resp, err
}

// patient tells how long requests wait for their turn. Which they are it does not
// hear: all that wait here are reads, but for a few events.
type patient struct {
	flowcontrol.RateLimiter
	host string
	to   Requests
}

// Wait is that of flowcontrol.RateLimiter.
func (p *patient) Wait(ctx context.Context) error {
	began := time.Now()
	err := p.RateLimiter.Wait(ctx)
	p.to.Throttled(http.MethodGet, p.host, time.Since(began))
	return err
}
