// Package httpserve runs the small HTTP servers on which others ask a service
// proxy how it is: it binds, binds again while the address cannot be had, and
// stops with a context.
package httpserve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// RetryAfter is how long a taken address is left alone. Another service proxy may hand it
// over at any moment, and load balancers ask all the while.
const RetryAfter = 250 * time.Millisecond

// A client that says nothing, does not send the body that it announced, or does not
// read its answer may not hold a connection for long: some of these ports are open to
// everybody. Where a CPU profile takes longer, net/http/pprof moves the limit on writing.
const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 10 * time.Second
	writeTimeout   = time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Config says what is served where.
type Config struct {
	Address string // host:port, as net.Listen takes it; 0.0.0.0 is every address of both families
	Handler http.Handler
	// Certificate has Run serve TLS; nil serves without.
	Certificate *Certificate
	// Limit bounds the connections; nil does not.
	Limit *Limit
	// HardFail has Run return a failure instead of trying again.
	HardFail bool
	// Report is told of a failure after which Run tries again, once for as long as it
	// stays the same. May be nil.
	Report func(error)
	// RetryAfter is how long it waits before that; 0 is the constant.
	RetryAfter time.Duration
	// Listen opens the address; nil is net.Listen.
	Listen func(network, address string) (net.Listener, error)
}

// Run serves until the context ends, then returns nil. With HardFail it returns
// the first failure. Then no handler runs any more: their requests' contexts have ended, and
// what they use may be closed.
func Run(ctx context.Context, cfg Config) error {
	var told string
	for {
		err := serve(ctx, cfg)
		if ctx.Err() != nil {
			return nil
		}
		if cfg.HardFail {
			return err
		}
		if cfg.Report != nil && err.Error() != told {
			told = err.Error()
			cfg.Report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cmp.Or(cfg.RetryAfter, RetryAfter)):
		}
	}
}

// serve binds once and serves until something ends it.
func serve(ctx context.Context, cfg Config) error {
	listen := cfg.Listen
	if listen == nil {
		listen = net.Listen
	}
	var secure *tls.Config
	if cfg.Certificate != nil {
		var err error
		if secure, err = cfg.Certificate.config(); err != nil {
			return err
		}
	}
	listener, err := listen("tcp", cfg.Address)
	if err != nil {
		return err // "listen tcp 127.0.0.1:10249: bind: address already in use"
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	var running sync.RWMutex // handlers hold it for reading
	server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !running.TryRLock() {
			return // the server has ended, and with it the connection
		}
		defer running.RUnlock()
		cfg.Handler.ServeHTTP(w, r)
	}), cfg.Limit)
	defer func() {
		server.Close()
		running.Lock()
	}()
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", cfg.Address, err)
	}
	return nil
}

// NewServer returns a server with the time limits of this package, and a limit of connections or nil.
func NewServer(handler http.Handler, limit *Limit) *http.Server {
	server := &http.Server{
		Handler:           limitBody(handler),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	if limit != nil {
		limit.bound(server)
	}
	return server
}

// limitBody limits how long the server waits for a body. A ReadTimeout would do so as
// well, but also end the context of a request without body, and with it a CPU profile.
func limitBody(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// No connection lacks deadlines but those of tests.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		handler.ServeHTTP(w, r)
	})
}
