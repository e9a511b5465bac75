package kube

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// failover sends requests to the server that answered last, and where that one
// cannot be reached to the others in turn.
//
// Where none of those that it was told of can be reached, it asks those that were
// good before.
//
// It changes the URL and not what the dialler connects to, so that a server is
// verified under its own name and no connection is taken for that of another.
type failover struct {
	base    http.RoundTripper
	servers []*url.URL // nil among them: where the request says
	kept    *lastGood  // nil for none
	states  *serverStates
	current atomic.Uint32
	lost    atomic.Bool // no server could be reached the last time
	report  func(error) // is told why
	back    func()      // is called when one can again
}

// RoundTrip is that of http.RoundTripper.
func (f *failover) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.try(req)
	switch {
	case err == nil:
		if resp.StatusCode < http.StatusInternalServerError && f.lost.CompareAndSwap(true, false) {
			f.back()
		}
	case req.Context().Err() == nil: // we did not end it ourselves
		f.lost.Store(true)
		f.report(err)
	}
	return resp, err
}

// try asks one server after the other.
func (f *failover) try(req *http.Request) (*http.Response, error) {
	servers := f.all(req)
	first := f.current.Load()
	var errs []error
	for i := range uint32(len(servers)) {
		at := (first + i) % uint32(len(servers))
		out := to(servers[at], req)
		resp, err := f.ask(out)
		if err == nil {
			f.settle(first, at, resp.StatusCode, len(servers))
			if f.kept != nil && resp.StatusCode < http.StatusInternalServerError {
				f.kept.answer(out.URL.Scheme, out.URL.Host)
			}
			return resp, nil
		}
		if len(servers) > 1 {
			err = fmt.Errorf("%s: %w", out.URL.Host, err)
		}
		errs = append(errs, err)
		if !repeatable(req) {
			break
		}
	}
	f.settle(first, first, http.StatusServiceUnavailable, len(servers))
	return nil, &unreachableError{errs}
}

// ask asks one server, and notes whether it answers.
func (f *failover) ask(req *http.Request) (*http.Response, error) {
	server := req.URL.Scheme + "://" + req.URL.Host
	f.states.asked(server)
	resp, err := f.base.RoundTrip(req)
	switch {
	case err == nil && resp.StatusCode >= http.StatusInternalServerError:
		f.states.answered(server, errUnwell)
	case err == nil || req.Context().Err() == nil: // we did not end it ourselves
		f.states.answered(server, err)
	}
	return resp, err
}

// all returns the servers to try, in this order: those that we were told of, then
// those that were good before. The address of the cluster's own Service of them
// comes last, though it was the only one: it may lead to nobody but us.
func (f *failover) all(req *http.Request) []*url.URL {
	told := f.servers
	if len(told) == 0 {
		told = []*url.URL{nil}
	}
	if f.kept == nil {
		return told
	}
	known := map[string]bool{}
	for _, u := range told {
		known[to(u, req).URL.Host] = true
	}
	others := slices.DeleteFunc(f.kept.servers(), func(u *url.URL) bool { return known[u.Host] })
	if len(f.servers) == 0 && f.kept.isVirtual(req.URL.Hostname()) {
		return append(others, told...)
	}
	return append(slices.Clone(told), others...)
}

// to returns the request as it is for one of the servers.
func to(server *url.URL, req *http.Request) *http.Request {
	if server == nil {
		return req
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, ""
	return out
}

// settle notes which server answered. One that says it is unwell keeps what it
// answered, but the next request goes elsewhere. Of several requests that fail
// at a time, one moves on for all.
func (f *failover) settle(first, at uint32, status, servers int) {
	if status >= http.StatusInternalServerError {
		at = (at + 1) % uint32(servers)
	}
	if at != first {
		f.current.CompareAndSwap(first, at)
	}
}

// repeatable says whether a request can be sent again.
func repeatable(req *http.Request) bool {
	return req.Context().Err() == nil && (req.Body == nil || req.Body == http.NoBody)
}

// unreachableError is that no server could be reached, for whatever reason.
//
// It passes for a refused connection. After that a reflector goes on where it
// was; after other errors, such as a missing route, it would ask for everything
// again, and so would all nodes at once.
type unreachableError struct{ errs []error }

func (e *unreachableError) Error() string {
	var each []string
	for _, err := range e.errs {
		each = append(each, err.Error())
	}
	return strings.Join(each, "; ")
}

// Unwrap returns the error of each server, and the one that it passes for.
func (e *unreachableError) Unwrap() []error {
	return append(slices.Clone(e.errs), syscall.ECONNREFUSED)
}

// parseServers reads the URLs of API servers.
func parseServers(values []string) ([]*url.URL, error) {
	var servers []*url.URL
	for _, value := range values {
		u, err := url.Parse(value)
		if err == nil && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
			err = errors.New("not of the form https://host:port")
		}
		if err != nil {
			return nil, fmt.Errorf("read API server %q: %w", value, err)
		}
		servers = append(servers, u)
	}
	return servers, nil
}

// orderFor returns the servers in an order of this node's own, so that the
// nodes spread over the servers, and over those that are left when one fails.
func orderFor(node string, servers []*url.URL) []*url.URL {
	rank := func(u *url.URL) string {
		sum := sha256.Sum256([]byte(u.Host + " " + node))
		return string(sum[:])
	}
	return slices.SortedFunc(slices.Values(servers), func(a, b *url.URL) int { return strings.Compare(rank(a), rank(b)) })
}
