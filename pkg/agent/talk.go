package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// socketFile is where the agent itself answers those who may: /healthz and /livez, whose
// ports another service proxy may hold, and what the command line asks. It is within the
// state directory.
const socketFile = "agent.sock"

// These are paths of the socket. Earlier agents refuse those of orders: they would carry out orders late.
const (
	livePath       = "/live"
	ordersDrained  = "/orders/drained"
	ordersLogLevel = "/orders/log-level"
)

func (a *statusServer) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.proxy.ReadyHandler())
	own := a.metrics.Handler(metrics.HandlerConfig{Config: func() any { return a.cfg.Settings }})
	mux.Handle("GET "+Metrics, own)
	mux.Handle("GET "+Settings, own)
	mux.HandleFunc("GET "+livePath, answer(func(*http.Request) (any, error) { return a.live.get(), nil }))
	mux.HandleFunc("GET /backends", a.serveBackends)
	mux.HandleFunc("GET /diff", answer(func(r *http.Request) (any, error) { return a.inbox.Diff(r.Context()) }))
	drained := order(a.changeDrained)
	mux.HandleFunc("PUT "+ordersDrained, drained)
	mux.HandleFunc("DELETE "+ordersDrained, drained)
	if j := a.cfg.Journal; j != nil {
		mux.HandleFunc("GET "+Log, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(j.tail()) }) // fails where nobody reads it
		mux.HandleFunc("GET /log-level", answer(func(*http.Request) (any, error) { return j.level(), nil }))
		mux.HandleFunc("PUT "+ordersLogLevel, order(func(r *http.Request, begin func() error) (any, error) {
			lasts, err := time.ParseDuration(r.FormValue("for"))
			if err != nil {
				return nil, err
			}
			return j.setLevel(begin, r.FormValue("level"), lasts)
		}))
	}
	return mux
}

// answer answers with a value as JSON, or says why there is none.
func answer(of func(*http.Request) (any, error)) http.HandlerFunc {
	return order(func(r *http.Request, _ func() error) (any, error) { return of(r) })
}

// order answers likewise with what an order did. The function do calls begin right before it changes something, under
// its lock, and changes nothing if that fails.
func order(do func(r *http.Request, begin func() error) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { serveOrder(w, r, do) }
}

func serveOrder(w http.ResponseWriter, r *http.Request, do func(r *http.Request, begin func() error) (any, error)) {
	value, err := do(r, func() error { return begin(w, r) })
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // fails where nobody reads it
}

// deadline is the header with the end of the client's patience, in nanoseconds of sinceBoot.
const deadline = "Headgate-Deadline"

// sinceBoot is a clock that a node and its containers share, which jumps of the wall clock leave alone, and which goes on while the node sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel that runs this has it
	return time.Duration(t.Nano())
}

// begin tells the client that its order is carried out now. It fails where the order is late, or its client has given up.
func begin(w http.ResponseWriter, r *http.Request) error {
	until, _ := strconv.ParseInt(r.Header.Get(deadline), 10, 64) // without it the order is late
	if late := sinceBoot() - time.Duration(until); late >= 0 {
		return fmt.Errorf("the order comes %s late, so it is not carried out: give it again", late.Round(time.Millisecond))
	}
	w.WriteHeader(http.StatusProcessing)
	return r.Context().Err() // a write that fails has ended it
}

// changeDrained drains the backends that are asked for, or has them in use again.
func (a *statusServer) changeDrained(r *http.Request, begin func() error) (any, error) {
	q := r.URL.Query()
	d, err := lb.ParseDrained(q["word"])
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodDelete {
		return a.inbox.Undrain(r.Context(), begin, d)
	}
	return a.inbox.Drain(r.Context(), begin, d, q.Get("force") != "")
}

// listen asks the agent, and has what it says read.
func (p *Place) listen(ctx context.Context, q request, read func(io.Reader) error) error {
	return p.ask(ctx, q, func(resp *http.Response) error { return p.understand(resp, read) })
}

// understand has read what stands in an answer, or returns what the agent refuses.
func (p *Place) understand(resp *http.Response, read func(io.Reader) error) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if err := read(resp.Body); err != nil {
			return fmt.Errorf("read the answer of the agent of %s: %w; if it is of another version, use its headgate", p.StateDir, err)
		}
		return nil
	case http.StatusConflict:
		said, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return errors.New(string(bytes.TrimSpace(said)))
	default:
		return fmt.Errorf("the agent of %s is of another version: it does not answer that; use the headgate of the agent", p.StateDir)
	}
}

// hear asks the agent for a value, which it says as JSON.
func (p *Place) hear(ctx context.Context, q request, value any) error {
	return p.listen(ctx, q, func(from io.Reader) error { return json.NewDecoder(from).Decode(value) })
}

// AskLive asks the agent what it does.
func (p *Place) AskLive(ctx context.Context) (live Live, err error) {
	err = p.hear(ctx, request{http.MethodGet, livePath, askTimeout, ""}, &live)
	return live, err
}

// AskDiff asks it what an agent that starts now would write.
func (p *Place) AskDiff(ctx context.Context) (all []reconciler.Difference, err error) {
	err = p.hear(ctx, look("/diff"), &all)
	return all, err
}

// AskLogLevel asks it from which severity on it logs.
func (p *Place) AskLogLevel(ctx context.Context) (l LogLevel, err error) {
	err = p.hear(ctx, look("/log-level"), &l)
	return l, err
}

// SetLogLevel has it log from another severity on, for some time or, with 0, until it ends.
func (p *Place) SetLogLevel(ctx context.Context, level string, lasts time.Duration) (l LogLevel, err error) {
	what := ordersLogLevel + "?for=" + url.QueryEscape(lasts.String()) + "&level=" + url.QueryEscape(level)
	err = p.hear(ctx, request{http.MethodPut, what, lookTimeout, "headgate log-level"}, &l)
	return l, err
}

// Drain has it give some backends no new connections, or, without drain, give them some again.
func (p *Place) Drain(ctx context.Context, d lb.Drained, drain, force bool) (out reconciler.DrainResult, err error) {
	q := request{http.MethodPut, ordersDrained + "?" + parameters("word", d.Words()), lookTimeout, "headgate drain"}
	if !drain {
		q.method = http.MethodDelete
	}
	if force {
		q.what += "force=true"
	}
	err = p.hear(ctx, q, &out)
	return out, err
}

// parameters returns a query with a parameter for each word, to which more may be added.
func parameters(name string, words []string) (query string) {
	for _, w := range words {
		query += name + "=" + url.QueryEscape(w) + "&"
	}
	return query
}

// What AskText asks for: the metrics, what is in force by the names of flags, the end of the log.
const (
	Metrics  = "/metrics"
	Settings = "/configz"
	Log      = "/log"
)

// AskText asks the agent for one of these.
func (p *Place) AskText(ctx context.Context, what string) (text []byte, err error) {
	err = p.listen(ctx, look(what), func(from io.Reader) (err error) {
		text, err = io.ReadAll(from)
		return err
	})
	return text, err
}
