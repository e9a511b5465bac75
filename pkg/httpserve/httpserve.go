// Package httpserve runs the small HTTP servers on which others ask a service
// proxy how it is: it binds, binds again while the address cannot be had, and
// stops with a context.
package httpserve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// RetryAfter is how long kube-proxy waits before it binds again.
const RetryAfter = 5 * time.Second

// A client that connects and says nothing may not hold a connection for long:
// some of these ports are open to everybody. There is no limit on writing, as a
// CPU profile takes as long as it was asked to.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Config says what is served where.
type Config struct {
	Address string // host:port, as net.Listen takes it; 0.0.0.0 is every address of both families
	Handler http.Handler
	// HardFail has Run return a failure instead of trying again.
	HardFail bool
	// Report is told of every failure after which Run tries again. May be nil.
	Report func(error)
	// RetryAfter is how long it waits before that; 0 is five seconds.
	RetryAfter time.Duration
}

// Run serves until the context ends, then returns nil. With HardFail it returns
// the first failure.
func Run(ctx context.Context, cfg Config) error {
	for {
		err := serve(ctx, cfg)
		if ctx.Err() != nil {
			return nil
		}
		if cfg.HardFail {
			return err
		}
		if cfg.Report != nil {
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
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return err // "listen tcp 127.0.0.1:10249: bind: address already in use"
	}
	server := NewServer(cfg.Handler)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", cfg.Address, err)
	}
	return nil
}

// NewServer returns a server with the time limits of this package.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}
