package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

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
func mustListen(tb testing.TB) lb.AddrPort {
	tb.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return backendAt(tb, l.Addr().String())
}

// mustRefuse has a port that nobody listens at, nor can.
func mustRefuse(tb testing.TB) lb.AddrPort {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: uint16(at.(*syscall.SockaddrInet4).Port), Protocol: lb.TCP}
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
	silent := mustListen(t)
	gone := mustRefuse(t)
	at := map[int64]lb.AddrPort{}
	for _, status := range []int64{101, 200, 204, 302, 399, 400, 500} {
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
		{"101", at[101], lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}, false},
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
			if err := ask(t.Context(), targetOf(tc.backend, tc.probe), time.Second); (err == nil) != tc.well {
				t.Errorf("got %v, want well: %v", err, tc.well)
			}
		})
	}
}

func TestABackendHasNoMoreTimeThanUntilItIsAskedAgain(t *testing.T) {
	silent := mustListen(t)
	began := time.Now()
	if err := ask(t.Context(), targetOf(silent, lb.Probe{Kind: lb.HTTPProbe, Path: "/"}), 50*time.Millisecond); err == nil || time.Since(began) >= patience {
		t.Errorf("asked every 50 ms, it was waited %v for: %v", time.Since(began), err)
	}
}

// watched is a running prober with what it says.
type watched struct {
	*Prober
	says chan Verdict
}

// start starts a prober that may ask loopback addresses, and as often as it is told.
func start(t *testing.T, failures int) watched {
	t.Helper()
	w := newWatched(failures)
	w.leastInterval = 0
	w.run(t)
	return w
}

func newWatched(failures int) watched {
	says := make(chan Verdict, 1000)
	w := watched{New(Config{Failures: failures, Notify: func(_ context.Context, v Verdict) { says <- v }, Problems: func([]lb.Problem) {}}), says}
	w.refuse = func(netip.Addr) string { return "" }
	w.SetNode(nil)
	return w
}

func (w watched) run(t *testing.T) {
	t.Helper()
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
}

// answers are what targets answer where no network is asked.
type answers struct {
	mu    sync.Mutex
	bad   map[string]bool // by path
	asked int
}

// atAnyLoad runs a test with a prober that takes answers for those of targets, in time
// that passes when all wait: a machine that is busy would be a backend that is late.
func atAnyLoad(t *testing.T, failures int, test func(*testing.T, watched, *answers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, a := newWatched(failures), &answers{bad: map[string]bool{}}
		w.ask = func(_ context.Context, to target, _ time.Duration) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.asked++; a.bad[to.path] {
				return errors.New("it is not well")
			}
			return nil
		}
		w.run(t)
		test(t, w, a)
	})
}

// set says whether targets of a path are bad from now on, and how often all were asked.
func (a *answers) set(path string, bad bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bad[path] = bad
	return a.asked
}

// probing is a Service that has backends probed.
func probing(p lb.Probe, backends ...lb.AddrPort) []lb.Frontend {
	return []lb.Frontend{{Policy: lb.Policy{Probe: p}, Views: [lb.NumViews]lb.View{lb.Internal: {Backends: backends}}}}
}

// set has the backends of a Service asked.
func (w watched) set(name string, p lb.Probe, backends ...lb.AddrPort) {
	w.SetFrontends(lb.ServiceName{Namespace: "default", Name: name}, probing(p, backends...))
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
	case <-time.After(10 * interval):
	}
}

// interval is that of probes which take no real time.
const interval = time.Second

func httpProbe(path string) lb.Probe {
	return lb.Probe{Kind: lb.HTTPProbe, Path: path, Interval: interval}
}

func TestABackendIsBadAfterSomeFailuresAndWellAfterOneSuccess(t *testing.T) {
	atAnyLoad(t, 3, func(t *testing.T, w watched, a *answers) {
		b := backendAt(t, "198.51.100.1:80")
		w.set("web", httpProbe("/"), b)
		if v := w.next(t); v.Backend != b || v.Err != nil {
			t.Fatalf("at first: %+v", v)
		}
		w.quiet(t) // nothing is new
		before := a.set("/", true)
		v := w.next(t)
		if n := a.set("/", true) - before; v.Err == nil || n != 3 {
			t.Errorf("after %d failures: %+v, want it bad after 3", n, v)
		}
		if v.For != 3*interval {
			t.Errorf("it holds for %v, want three intervals", v.For)
		}
		began := time.Now()
		if v := w.next(t); v.Err == nil || time.Since(began) != interval {
			t.Errorf("after %v: %+v, want it said again after an interval", time.Since(began), v)
		}
		a.set("/", false)
		if v := w.next(t); v.Err != nil {
			t.Errorf("after a success: %+v", v)
		}
		w.quiet(t)
	})
}

func TestABackendThatNobodyWantsAskedIsWell(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, a *answers) {
		a.set("/", true)
		b := backendAt(t, "198.51.100.1:80")
		w.set("web", httpProbe("/"), b)
		if v := w.next(t); v.Err == nil {
			t.Fatalf("%+v, want it bad", v)
		}
		w.set("web", lb.Probe{}, b)
		if v := w.next(t); v.Err != nil {
			t.Errorf("%+v, want it well", v)
		}
		w.quiet(t)
	})
}

// One that was well is none that becomes well: others may have found it bad.
func TestNothingIsSaidOfAWellBackendThatNobodyWantsAsked(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, _ *answers) {
		b := backendAt(t, "198.51.100.1:80")
		w.set("web", httpProbe("/"), b)
		w.next(t)
		w.set("web", lb.Probe{}, b)
		w.quiet(t)
		w.set("web", httpProbe("/"), b)
		if v := w.next(t); v.Err != nil {
			t.Errorf("asked again: %+v", v)
		}
	})
}

func TestBackendsAreAskedAtTheirIntervalAndNotAllAtOnce(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, a *answers) {
		slow := httpProbe("/")
		slow.Interval = time.Hour
		at := map[time.Time]bool{}
		for i := range 10 { // each namespace has a budget of its own
			b := backendAt(t, fmt.Sprintf("198.51.100.%d:80", i))
			w.SetFrontends(lb.ServiceName{Namespace: fmt.Sprint(i), Name: "web"}, probing(slow, b))
		}
		for range 10 {
			<-w.says
			at[time.Now()] = true
		}
		if len(at) < 5 {
			t.Errorf("10 targets were asked at %d times", len(at))
		}
		time.Sleep(time.Hour)
		asked := a.set("/", false)
		w.SetFrontends(lb.ServiceName{Namespace: "0", Name: "web"}, probing(httpProbe("/"), backendAt(t, "198.51.100.0:80")))
		time.Sleep(2 * time.Hour) // the new interval counts from the next time on
		if n := a.set("/", false) - asked; n < 3600 {
			t.Errorf("asked %d times in 2 hours, want each second from some time within the first on", n)
		}
	})
}

func TestABackendThatItsTargetIsNoLongerAskedForIsWell(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, a *answers) {
		a.set("/", true)
		p, stays, goes := httpProbe("/"), backendAt(t, "198.51.100.1:80"), backendAt(t, "198.51.100.1:81")
		p.Port = 8080
		w.set("stays", p, stays)
		w.set("goes", p, goes)
		next := func() (bad, well map[lb.AddrPort]bool) {
			bad, well = map[lb.AddrPort]bool{}, map[lb.AddrPort]bool{}
			for range 10 {
				v := w.next(t)
				map[bool]map[lb.AddrPort]bool{true: well, false: bad}[v.Err == nil][v.Backend] = true
			}
			return bad, well
		}
		if bad, well := next(); len(bad) != 2 || len(well) != 0 {
			t.Fatalf("bad %v, well %v, want both bad", bad, well)
		}
		w.set("goes", lb.Probe{}, goes)
		if bad, well := next(); !bad[stays] || !well[goes] || well[stays] {
			t.Errorf("bad %v, well %v, want the one well that is not asked for any more", bad, well)
		}
	})
}

// A request that ends since the prober does says nothing of the backend.
func TestAProberThatEndsSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(1)
		w.ask = func(ctx context.Context, _ target, _ time.Duration) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		w.set("web", httpProbe("/"), backendAt(t, "198.51.100.1:80"))
		time.Sleep(2 * interval)
		cancel()
		<-done
		if len(w.says) > 0 {
			t.Errorf("said %+v", <-w.says)
		}
	})
}

func TestABackendOfTwoServicesIsWellIfBothProbesSaySo(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, a *answers) {
		a.set("/first", true)
		b := backendAt(t, "198.51.100.1:80")
		w.set("first", httpProbe("/first"), b)
		if v := w.next(t); v.Err == nil {
			t.Fatalf("%+v, want it bad", v)
		}
		w.set("second", httpProbe("/second"), b)
		for range 10 {
			if v := w.next(t); v.Err == nil {
				t.Fatal("one of two probes says that it is well, and it counts as well")
			}
		}
		a.set("/first", false)
		if v := w.next(t); v.Err != nil {
			t.Errorf("%+v, want it well", v)
		}
		w.quiet(t)
	})
}
