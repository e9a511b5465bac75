package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// socketFile is where the agent itself answers those who may: /healthz and /livez, whose
// ports another service proxy may hold, and what the command line asks. It is within the
// state directory.
const socketFile = "agent.sock"

func (a *statusServer) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", a.proxy.ReadyHandler())
	own := a.metrics.Handler(metrics.HandlerConfig{Config: func() any { return a.cfg.Settings }})
	mux.Handle("GET "+Metrics, own)
	mux.Handle("GET "+Settings, own)
	mux.HandleFunc("GET /live", answer(func(*http.Request) (any, error) { return a.live.get(), nil }))
	mux.HandleFunc("GET /backends", a.serveBackends)
	mux.HandleFunc("GET /diff", answer(func(r *http.Request) (any, error) { return a.inbox.Diff(r.Context()) }))
	mux.HandleFunc("PUT /drained", drainedAnswer(func(ctx context.Context, d lb.Drained, forced bool) (any, error) {
		return a.inbox.Drain(ctx, d, forced)
	}))
	mux.HandleFunc("DELETE /drained", drainedAnswer(func(ctx context.Context, d lb.Drained, _ bool) (any, error) { return a.inbox.Undrain(ctx, d) }))
	if j := a.cfg.Journal; j != nil {
		mux.HandleFunc("GET "+Log, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(j.tail()) }) // fails where nobody reads it
		mux.HandleFunc("GET /log-level", answer(func(*http.Request) (any, error) { return j.level(), nil }))
		mux.HandleFunc("PUT /log-level", answer(func(r *http.Request) (any, error) {
			lasts, err := time.ParseDuration(r.FormValue("for"))
			if err != nil {
				return nil, err
			}
			return j.setLevel(r.FormValue("level"), lasts)
		}))
	}
	return mux
}

// answer answers with a value as JSON, or says why there is none.
func answer(of func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := of(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value) // fails where nobody reads it
	}
}

// drainedAnswer answers what is done with the backends that are asked for.
func drainedAnswer(do func(ctx context.Context, d lb.Drained, forced bool) (any, error)) http.HandlerFunc {
	return answer(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		d, err := lb.ParseDrained(q["word"])
		if err != nil {
			return nil, err
		}
		return do(r.Context(), d, q.Get("force") != "")
	})
}

// How long an agent may take to answer: at once, or once it has looked at everything.
const (
	askTimeout  = 3 * time.Second
	lookTimeout = 50 * time.Second
)

// ask asks the agent with a state directory. The answer is to be closed.
func ask(ctx context.Context, stateDir, method, what string, timeout time.Duration) (*http.Response, error) {
	path := filepath.Join(stateDir, socketFile)
	client := http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+what, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(request)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("ask the agent at %s: permission denied; run it with sudo", path)
	}
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err // without what was asked
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("the agent at %s did not answer in time: look whether it hangs, and at its log: %w", path, context.DeadlineExceeded)
	}
	if err != nil {
		return nil, fmt.Errorf("no agent answers at %s: %w: start one, or name its directory with --state-dir", path, err)
	}
	return resp, nil
}

// errOtherVersion says that an agent does not know what it was asked.
func errOtherVersion(stateDir string) error {
	return fmt.Errorf("the agent of %s is of another version: it does not answer that; use the headgate of the agent", stateDir)
}

// listen asks the agent with a state directory, and has what it says read.
func listen(ctx context.Context, stateDir, method, what string, read func(io.Reader) error) error {
	resp, err := ask(ctx, stateDir, method, what, lookTimeout)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		err = read(resp.Body)
	case http.StatusConflict:
		var said []byte
		if said, err = io.ReadAll(resp.Body); err == nil {
			return errors.New(string(bytes.TrimSpace(said)))
		}
	default:
		return errOtherVersion(stateDir)
	}
	if err != nil {
		return fmt.Errorf("read the answer of the agent of %s: %w", stateDir, err)
	}
	return nil
}

// hear asks the agent with a state directory, and returns what it says.
func hear(ctx context.Context, stateDir, method, what string) (body []byte, err error) {
	err = listen(ctx, stateDir, method, what, func(from io.Reader) (err error) {
		body, err = io.ReadAll(from)
		return err
	})
	return body, err
}

// hearValue reads what the agent says as JSON.
func hearValue[T any](ctx context.Context, stateDir, method, what string) (value T, err error) {
	body, err := hear(ctx, stateDir, method, what)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return value, errOtherVersion(stateDir)
	}
	return value, nil
}

// AskLive asks the agent with a state directory what it does.
func AskLive(ctx context.Context, stateDir string) (Live, error) {
	return hearValue[Live](ctx, stateDir, http.MethodGet, "/live")
}

// AskDiff asks it what an agent that starts now would write.
func AskDiff(ctx context.Context, stateDir string) ([]reconciler.Difference, error) {
	return hearValue[[]reconciler.Difference](ctx, stateDir, http.MethodGet, "/diff")
}

// AskLogLevel asks it from which severity on it logs.
func AskLogLevel(ctx context.Context, stateDir string) (LogLevel, error) {
	return hearValue[LogLevel](ctx, stateDir, http.MethodGet, "/log-level")
}

// SetLogLevel has it log from another severity on, for some time or, with 0, until it ends.
func SetLogLevel(ctx context.Context, stateDir, level string, lasts time.Duration) (LogLevel, error) {
	q := url.Values{"level": {level}, "for": {lasts.String()}}
	return hearValue[LogLevel](ctx, stateDir, http.MethodPut, "/log-level?"+q.Encode())
}

// Drain has it give some backends no new connections, or, without drain, give them some again.
func Drain(ctx context.Context, stateDir string, d lb.Drained, drain, force bool) (reconciler.DrainResult, error) {
	method, q := http.MethodPut, url.Values{"word": d.Words()}
	if !drain {
		method = http.MethodDelete
	}
	if force {
		q.Set("force", "true")
	}
	return hearValue[reconciler.DrainResult](ctx, stateDir, method, "/drained?"+q.Encode())
}

// What AskText asks for: the metrics, what is in force by the names of flags, the end of the log.
const (
	Metrics  = "/metrics"
	Settings = "/configz"
	Log      = "/log"
)

// AskText asks the agent with a state directory for one of these.
func AskText(ctx context.Context, stateDir, what string) ([]byte, error) {
	return hear(ctx, stateDir, http.MethodGet, what)
}
