package httpserve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// handOver is how long it may take until an address is served that another process has left:
// ten times a quarter of a second.
const handOver = 2500 * time.Millisecond

func TestAnAddressIsServedSoonAfterAnotherProcessHasLeftIt(t *testing.T) {
	taken := mustListen(t)
	failures := make(chan error, 1000)
	go func() {
		_ = Run(t.Context(), Config{Address: taken.Addr().String(), Handler: hello(), Report: func(err error) { failures <- err }})
	}()
	wantInUse(t, mustReceive(t, failures))
	time.Sleep(time.Second)
	left := time.Now()
	taken.Close()
	mustGet(t, taken.Addr().String())
	if took := time.Since(left); took > handOver {
		t.Errorf("nobody answers for %v", took)
	}
	if len(failures) > 0 {
		t.Errorf("the same failure was reported again: %v", <-failures)
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

// Time passes in the test only, on connections in memory.
func TestNoClientHoldsItsConnectionForever(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: x\r\n"
	for name, said := range map[string]string{
		"says nothing":                     "",
		"begins a header":                  get,
		"is silent after an answer":        get + "\r\n",
		"announces a body":                 get + "Content-Length: 9\r\n\r\n",
		"announces a body without length":  get + "Transfer-Encoding: chunked\r\n\r\n",
		"stops in a body after an answer":  get + "\r\n" + get + "Content-Length: 9\r\n\r\n123",
		"asks twice and stops in a header": get + "\r\n" + get,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := mustServe(t, hello())
				go func() { _, _ = io.WriteString(client, said) }()
				_, _ = io.Copy(io.Discard, client) // until the server closes
			})
		})
	}
	t.Run("does not read its answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := mustServe(t, hello())
			_, _ = io.WriteString(client, get+"\r\n")
			time.Sleep(2 * writeTimeout)
			if answer, _ := io.ReadAll(client); len(answer) > 0 {
				t.Errorf("answered %q after all", answer)
			}
		})
	})
}

// A body that comes is no reason to end a connection, nor is a long answer without one.
func TestPatientClientsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := mustServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(writeTimeout - time.Second)
			if r.Context().Err() == nil {
				_, _ = io.WriteString(w, "hello")
			}
		}))
		answers := bufio.NewReader(client)
		for _, body := range []string{"Content-Length: 3\r\n\r\n123", "\r\n", "\r\n"} {
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n"+body); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if said, err := io.ReadAll(answer.Body); string(said) != "hello" || err != nil {
				t.Errorf("answered %q, %v", said, err)
			}
		}
	})
}

// mustServe returns the client's end of a connection in memory.
func mustServe(tb testing.TB, handler http.Handler) net.Conn {
	tb.Helper()
	client, served := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- served
	server := NewServer(handler, nil)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(pipes{conns}) }()
	tb.Cleanup(func() { client.Close(); close(conns); <-ended; server.Close() })
	return client
}

// pipes accepts connections in memory.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

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

// What handlers use may be closed after Run.
func TestNoHandlerRunsAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Bool
	listening, begun, done := make(chan net.Addr, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Address: "127.0.0.1:0",
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				time.Sleep(100 * time.Millisecond) // what it does to its end
				ended.Store(true)
			}),
			Listen: func(network, address string) (net.Listener, error) {
				l, err := net.Listen(network, address)
				if err == nil {
					listening <- l.Addr()
				}
				return l, err
			},
		})
	}()
	address := mustReceive(t, listening).String()
	go func() {
		if r, err := http.Get("http://" + address); err == nil {
			r.Body.Close()
		}
	}()
	mustReceive(t, begun)
	cancel()
	if err := mustReceive(t, done); err != nil || !ended.Load() {
		t.Errorf("Run returned %v, and the handler has ended: %t", err, ended.Load())
	}
}
