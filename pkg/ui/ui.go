package ui

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

//go:embed page
var files embed.FS

// mostSearched is how many bytes are searched for at the most: namespace, name and port have 63 each.
const mostSearched = 200

// mostRows is how many Service ports are sent at once.
const mostRows = 200

// New returns what serves the page and what it asks for. It answers those only who ask for it
// by a name of the loopback, so it is to be served there.
func New(source Source) http.Handler {
	n := newNode(source)
	mux := http.NewServeMux()
	for path, file := range map[string]string{"/{$}": "page/index.html", "/ui.css": "page/ui.css", "/ui.js": "page/ui.js"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, file) })
	}
	mux.HandleFunc("GET /api/node", answer(func(ctx context.Context, _ *http.Request) (any, error) { return n.overview(ctx) }))
	mux.HandleFunc("GET /api/services", answer(n.serveServices))
	mux.HandleFunc("GET /api/service", answer(func(ctx context.Context, r *http.Request) (any, error) {
		return n.service(ctx, r.FormValue("name"))
	}))
	mux.HandleFunc("GET /api/explain", answer(func(ctx context.Context, r *http.Request) (any, error) {
		return n.explain(ctx, r.FormValue("name"), r.FormValue("from"))
	}))
	return guard(mux)
}

// headers keep the page from loading anything from elsewhere, and others from showing it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// guard refuses what pages of others ask for in the name of whoever looks at them: by a name of
// their own that leads to the loopback (DNS rebinding), or straight.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		switch site := r.Header.Get("Sec-Fetch-Site"); {
		case !isLoopback(r.Host):
			http.Error(w, fmt.Sprintf("Host: %s: not a name of the loopback; ask for localhost or 127.0.0.1", lb.Quote(r.Host)), http.StatusForbidden)
		case site != "" && site != "same-origin" && site != "none":
			http.Error(w, "another site asks: open the page itself", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLoopback says whether a host, with or without port, can be nothing but this machine.
func isLoopback(host string) bool {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().IsLoopback()
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return addr.IsLoopback()
	}
	name, _, _ := strings.Cut(host, ":")
	return strings.EqualFold(name, "localhost")
}

// answer returns what answers with a value as JSON, or with an error as {"error": "why"}.
func answer(read func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := read(r.Context(), r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(statusOf(err))
			value = map[string]string{"error": lb.Printable(err.Error())}
		}
		_ = json.NewEncoder(w).Encode(value) // fails where nobody reads it
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNoService):
		return http.StatusNotFound
	case errors.As(err, new(BadRequest)):
		return http.StatusBadRequest
	default:
		return http.StatusServiceUnavailable
	}
}

func (n *node) serveServices(ctx context.Context, r *http.Request) (any, error) {
	q := query{search: r.FormValue("search"), sort: r.FormValue("sort"), descending: r.FormValue("descending") == "true"}
	if q.sort == "" {
		q.sort = "state"
	}
	if orders[q.sort] == nil {
		return nil, badRequest("sort=%s: write one of %s", lb.Quote(q.sort), strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	}
	if len(q.search) > mostSearched {
		return nil, badRequest("search=%s: write %d bytes at the most", lb.Quote(q.search), mostSearched)
	}
	var err error
	if q.from, err = whole(r, "from", 0); err != nil {
		return nil, err
	}
	if q.count, err = whole(r, "count", mostRows); err != nil {
		return nil, err
	}
	q.count = min(q.count, mostRows)
	return n.services(ctx, q)
}

// whole returns a whole number of a query.
func whole(r *http.Request, name string, missing int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return missing, nil
	}
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, badRequest("%s=%s: write a whole number, such as 0 or 100", name, lb.Quote(text))
	}
	return int(number), nil
}

func badRequest(format string, args ...any) error { return BadRequest{fmt.Errorf(format, args...)} }
