package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync/atomic"
	"testing"
)

// silent is a listener to which nobody connects.
type silent struct {
	done   chan struct{}
	closed *atomic.Bool
}

func (l *silent) Accept() (net.Conn, error) {
	<-l.done
	return nil, errors.New("closed")
}

func (l *silent) Close() error {
	if l.closed.CompareAndSwap(false, true) {
		close(l.done)
	}
	return nil
}

func (l *silent) Addr() net.Addr { return &net.TCPAddr{} }

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
