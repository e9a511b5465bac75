package probe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

const often = 20 * time.Millisecond

// backendAt is a backend at the address of a listener.
func backendAt(tb testing.TB, address string) lb.AddrPort {
	tb.Helper()
	at, err := netip.ParseAddrPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		tb.Fatal(err)
	}
	return lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: lb.TCP}
}

// mustListen takes connections, and answers nothing.
func mustListen(tb testing.TB) (lb.AddrPort, net.Listener) {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return backendAt(tb, l.Addr().String()), l
}

// web answers with a status, which can change.
func web(tb testing.TB, status *atomic.Int64) lb.AddrPort {
	tb.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Location", "http://192.0.2.1/nowhere")
		w.WriteHeader(int(status.Load()))
	}))
	tb.Cleanup(s.Close)
	return backendAt(tb, s.URL)
}

func TestABackendIsWellIfItAnswers(t *testing.T) {
	silent, _ := mustListen(t)
	gone, l := mustListen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	at := map[int64]lb.AddrPort{}
	for _, status := range []int64{200, 204, 302, 399, 400, 404, 500} {
		var s atomic.Int64
		s.Store(status)
		at[status] = web(t, &s)
	}
	elsewhere := lb.AddrPort{Addr: gone.Addr, Port: 1, Protocol: lb.UDP}
	for _, tc := range []struct {
		name    string
		backend lb.AddrPort
		probe   lb.Probe
		well    bool
	}{
		{"takes connections", silent, lb.Probe{Kind: lb.TCPProbe}, true},
		{"refuses", gone, lb.Probe{Kind: lb.TCPProbe}, false},
		{"takes them at another port", elsewhere, lb.Probe{Kind: lb.TCPProbe, Port: silent.Port}, true},
		{"200", at[200], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, true},
		{"204", at[204], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, true},
		{"a redirection, which is not followed", at[302], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, true},
		{"399", at[399], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, true},
		{"400", at[400], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, false},
		{"500", at[500], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, false},
		{"another path", at[200], lb.Probe{Kind: lb.HTTPProbe, Path: "/"}, false},
		{"no answer in time", silent, lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, false},
		{"HTTP at another port", elsewhere, lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz", Port: at[200].Port}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.probe.Interval = time.Second
			if err := ask(t.Context(), tc.backend, tc.probe); (err == nil) != tc.well {
				t.Errorf("got %v, want well: %v", err, tc.well)
			}
		})
	}
}

// watched is a running prober with what it says.
type watched struct {
	*Prober
	says chan Verdict
}

func start(t *testing.T, failures int) watched {
	t.Helper()
	says := make(chan Verdict, 1000)
	w := watched{New(failures, func(_ context.Context, v Verdict) { says <- v }), says}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Error("Run does not end with its context")
		}
	})
	return w
}

// set has the backends of a Service asked.
func (w watched) set(name string, p lb.Probe, backends ...lb.AddrPort) {
	f := lb.Frontend{Health: lb.Health{Probe: p}, Internal: lb.View{Backends: backends}}
	w.SetFrontends(lb.ServiceName{Namespace: "default", Name: name}, []lb.Frontend{f})
}

func (w watched) next(t *testing.T) Verdict {
	t.Helper()
	select {
	case v := <-w.says:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is said")
		return Verdict{}
	}
}

// quiet fails if something is said within some intervals.
func (w watched) quiet(t *testing.T) {
	t.Helper()
	select {
	case v := <-w.says:
		t.Errorf("said %+v", v)
	case <-time.After(10 * often):
	}
}

func TestABackendIsBadAfterSomeFailuresAndWellAfterOneSuccess(t *testing.T) {
	w := start(t, 3)
	var status, asked atomic.Int64
	status.Store(200)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		rw.WriteHeader(int(status.Load()))
	}))
	defer s.Close()
	b := backendAt(t, s.URL)
	w.set("web", lb.Probe{Kind: lb.HTTPProbe, Path: "/", Interval: often}, b)
	if v := w.next(t); v.Backend != b || v.Err != nil {
		t.Fatalf("at first: %+v", v)
	}
	w.quiet(t) // nothing is new
	status.Store(500)
	before := asked.Load()
	v := w.next(t)
	if n := asked.Load() - before; v.Err == nil || n < 3 {
		t.Errorf("after %d failures: %+v, want it bad after 3", n, v)
	}
	if v.For != 3*often {
		t.Errorf("it holds for %v, want three intervals", v.For)
	}
	if v := w.next(t); v.Err == nil {
		t.Errorf("then: %+v, want it said again", v)
	}
	status.Store(200)
	for v = w.next(t); v.Err != nil; v = w.next(t) { // said before it was well
	}
	w.quiet(t)
}

func TestABackendThatNobodyWantsAskedIsWell(t *testing.T) {
	w := start(t, 1)
	b, l := mustListen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w.set("web", lb.Probe{Kind: lb.TCPProbe, Interval: often}, b)
	if v := w.next(t); v.Err == nil {
		t.Fatalf("%+v, want it bad", v)
	}
	w.set("web", lb.Probe{}, b)
	v := w.next(t)
	for ; v.Err != nil; v = w.next(t) {
	}
	w.quiet(t)
}

func TestABackendOfTwoServicesIsWellIfBothProbesSaySo(t *testing.T) {
	w := start(t, 1)
	var status atomic.Int64
	status.Store(500)
	b := web(t, &status)
	w.set("first", lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz", Interval: often}, b)
	for range 2 {
		if v := w.next(t); v.Err == nil {
			t.Fatalf("%+v, want it bad", v)
		}
	}
	w.set("second", lb.Probe{Kind: lb.TCPProbe, Interval: often}, b)
	time.Sleep(10 * often)
	for n := len(w.says); n > 0; n-- {
		if v := <-w.says; v.Err == nil {
			t.Fatal("one of two probes says that it is well, and it counts as well")
		}
	}
	status.Store(200)
	for w.next(t).Err != nil {
	}
	w.quiet(t)
}
