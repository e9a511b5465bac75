package httpserve

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what takes milliseconds.
const patience = 30 * time.Second

func TestATakenAddressIsReportedAndTriedAgainUntilItIsFree(t *testing.T) {
	taken := mustListen(t)
	failures := make(chan error, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Address: taken.Addr().String(), Handler: hello(),
			Report: func(err error) { failures <- err }, RetryAfter: 100 * time.Millisecond,
		})
	}()
	wantInUse(t, mustReceive(t, failures))
	taken.Close()
	if body := mustGet(t, taken.Addr().String()); body != "hello" {
		t.Errorf("answered %q", body)
	}
	cancel()
	if err := mustReceive(t, done); err != nil {
		t.Errorf("Run returned %v at the end of its context", err)
	}
	if c, err := net.Dial("tcp", taken.Addr().String()); err == nil {
		c.Close()
		t.Error("the port is still open after Run")
	}
}

func TestATakenAddressIsFatalWithHardFail(t *testing.T) {
	taken := mustListen(t)
	defer taken.Close()
	report := func(err error) { t.Errorf("reported %v", err) }
	wantInUse(t, Run(t.Context(), Config{Address: taken.Addr().String(), Handler: hello(), HardFail: true, Report: report}))
}

func TestTheEndOfTheContextEndsTheWaitForARetry(t *testing.T) {
	taken := mustListen(t)
	defer taken.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Address: taken.Addr().String(), Handler: hello(),
			Report: func(error) { cancel() }, RetryAfter: 10 * patience,
		})
	}()
	if err := mustReceive(t, done); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func TestASilentClientDoesNotHoldItsConnectionForever(t *testing.T) {
	if s := NewServer(hello()); s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 || s.WriteTimeout != 0 {
		t.Errorf("limits are header %s, idle %s, write %s", s.ReadHeaderTimeout, s.IdleTimeout, s.WriteTimeout)
	}
}

func hello() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
}

func wantInUse(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("want an address in use, got %v", err)
	}
}

func mustListen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func mustReceive[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		tb.Fatal("nothing came")
		panic("not reached")
	}
}

// mustGet asks until it is answered.
func mustGet(tb testing.TB, address string) string {
	tb.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + address)
		if err != nil {
			continue
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			tb.Fatal(err)
		}
		return string(body)
	}
	tb.Fatalf("no answer from %s", address)
	panic("not reached")
}
