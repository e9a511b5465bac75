package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/metrics"
)

// hung listens as an agent that is stopped does: connections come, and wait to be accepted.
func hung(t *testing.T) (*Place, net.Listener) {
	t.Helper()
	p := &Place{StateDir: t.TempDir()}
	l, err := net.Listen("unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return p, l
}

// goesOn has the agent answer, those first that have come before.
func goesOn(t *testing.T, l net.Listener, h http.Handler) {
	t.Helper()
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
}

// journalServer returns an agent that logs from warn on.
func journalServer(t *testing.T) (*Journal, http.Handler) {
	t.Helper()
	j, err := NewJournal("warn")
	if err != nil {
		t.Fatal(err)
	}
	return j, newStatusServer(Config{Journal: j}, zap.NewNop(), nil, metrics.New("test")).socketHandler()
}

// wantError looks for texts in an error.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v lacks %q", err, text)
		}
	}
}

func TestAnOrderThatIsGivenUpIsNotCarriedOut(t *testing.T) {
	p, l := hung(t)
	interrupted, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("interrupt signal received"))
	_, err := p.SetLogLevel(interrupted, "debug", 0)
	wantError(t, err, "has not answered yet: interrupt signal received; the order is not carried out")
	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.SetLogLevel(late, "debug", 0)
	wantError(t, err, fmt.Sprintf("agent pid %d has not answered for ", os.Getpid()), "; the order is not carried out")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no deadline that was exceeded", err)
	}

	j, h := journalServer(t)
	answered := make(chan string, 9)
	goesOn(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		answered <- r.Method + " " + r.URL.Path
	}))
	for range 2 {
		if got := <-answered; got != "PUT "+ordersLogLevel {
			t.Errorf("asked was %s", got)
		}
	}
	if got := j.Level.Level(); got != zapcore.WarnLevel {
		t.Errorf("the level is %v, as nobody waits for", got)
	}
	if _, err := p.SetLogLevel(t.Context(), "debug", 0); err != nil || j.Level.Level() != zapcore.DebugLevel {
		t.Errorf("in time: %v, the level is %v", err, j.Level.Level())
	}
}

// A client that is stopped itself is still connected when its time is over.
func TestAnOrderThatComesLateIsRefused(t *testing.T) {
	p, l := hung(t)
	j, h := journalServer(t)
	goesOn(t, l, h)
	err := p.hear(t.Context(), request{http.MethodPut, ordersLogLevel + "?for=0s&level=debug", time.Minute, "x"}, &LogLevel{})
	if err != nil || j.Level.Level() != zapcore.DebugLevel {
		t.Errorf("in time: %v, the level is %v", err, j.Level.Level())
	}
	for _, header := range []string{"", deadline + ": " + fmt.Sprint(int64(sinceBoot()-time.Second)) + "\r\n"} {
		conn, err := net.Dial("unix", p.socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT %s?for=0s&level=error HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n%s\r\n", ordersLogLevel, header)
		answer := make([]byte, 1000)
		n, _ := conn.Read(answer)
		if text := string(answer[:n]); !strings.HasPrefix(text, "HTTP/1.1 409 ") || j.Level.Level() != zapcore.DebugLevel {
			t.Errorf("with %q: the level is %v, and it says %s", header, j.Level.Level(), text)
		}
	}
}

func TestAnOrderThatHasBegunMayStillBeCarriedOut(t *testing.T) {
	p, l := hung(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	goesOn(t, l, order(func(r *http.Request, begin func() error) (any, error) {
		err := begin()
		interrupt(errors.New("interrupt signal received"))
		<-r.Context().Done()
		return nil, err
	}))
	_, err := p.SetLogLevel(ctx, "debug", 0)
	wantError(t, err, "interrupt signal received; the order may be carried out all the same: headgate log-level shows it")
}

// An agent answers others while it is at work, and none while it is stopped.
func TestAnAgentThatIsAtWorkIsNotSilent(t *testing.T) {
	t.Parallel()
	p, l := hung(t)
	probes := make(chan struct{})
	goesOn(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == livePath {
			select {
			case probes <- struct{}{}:
			case <-r.Context().Done():
			}
			return
		}
		for range 3 { // three seconds
			<-probes
		}
		_, _ = w.Write([]byte("[]"))
	}))
	if all, err := p.AskDiff(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestAnAgentThatIsSilentIsNamedWithin3Seconds(t *testing.T) {
	t.Parallel()
	p, _ := hung(t)
	began := time.Now()
	_, err := p.AskDiff(t.Context())
	if took := time.Since(began); took > lookTimeout/2 {
		t.Errorf("after %s", took)
	}
	var silent Silence
	if !errors.As(err, &silent) || !strings.Contains(string(silent), " s (process state ") || !strings.HasPrefix(string(silent), fmt.Sprintf("pid %d has not answered for ", os.Getpid())) {
		t.Errorf("%v", err)
	}
}

func TestOnlyWhereNoAgentRunsOneIsToBeStarted(t *testing.T) {
	p := &Place{StateDir: t.TempDir(), BPFRoot: t.TempDir()}
	_, err := p.AskDiff(t.Context())
	wantError(t, err, "no agent answers at "+filepath.Join(p.StateDir, socketFile)+": ", ": start one, or name its directory with --state-dir")
	f, err := os.Open(p.BPFRoot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // as an agent does
		t.Fatal(err)
	}
	_, err = p.AskDiff(t.Context())
	wantError(t, err, ": one runs, wait until it listens there, or name its directory with --state-dir")
}

// The kernel keeps only so much for an agent that does not read.
func TestALongOrderToASilentAgentEnds(t *testing.T) {
	p, _ := hung(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.SetLogLevel(ctx, strings.Repeat("debug", 1<<20), 0)
	wantError(t, err, "; the order is not carried out")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is no deadline that was exceeded", err)
	}
}

func TestAnAgentThatTakesNoMoreConnectionsIsSilent(t *testing.T) {
	p := &Place{StateDir: t.TempDir()}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: p.socket()}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	waiting, err := net.Dial("unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	_, err = p.AskLive(t.Context())
	wantError(t, err, "agent at "+p.socket()+" has not answered those that asked before")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not say that the agent is late", err)
	}
}
