package load

import (
	"context"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// mustServe starts servers on loopback, on ports that are free, and returns
// their addresses.
func mustServe(tb testing.TB, options serve.Options, names ...string) (*serve.Server, []netip.AddrPort) {
	tb.Helper()
	var endpoints []serve.Endpoint
	var targets []netip.AddrPort
	for i, name := range names {
		ip := netip.AddrFrom4([4]byte{127, 0, 7, byte(1 + i)})
		port, err := freePort(ip)
		if err != nil {
			tb.Fatal(err)
		}
		addr := netip.AddrPortFrom(ip, port)
		endpoints = append(endpoints, serve.Endpoint{Name: name, Addr: addr})
		targets = append(targets, addr)
	}
	server, err := serve.Start(endpoints, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server, targets
}

func mustRun(tb testing.TB, spec Spec) result.Run {
	tb.Helper()
	run, err := Run(context.Background(), spec, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if run.Due != run.Completed+run.Failed {
		tb.Errorf("%d due, but %d completed and %d failed", run.Due, run.Completed, run.Failed)
	}
	failed := uint64(0)
	for _, count := range run.Errors {
		failed += count
	}
	if failed != run.Failed {
		tb.Errorf("%d failed, but errors are %v", run.Failed, run.Errors)
	}
	return run
}

func wantNoErrors(tb testing.TB, run result.Run) {
	tb.Helper()
	if run.Failed > 0 || run.Broken > 0 {
		tb.Errorf("%d failed (%v, %v), %d connections broken, want none", run.Failed, run.Errors, run.ErrorExamples, run.Broken)
	}
}

// within says whether got is want, give or take a share of it.
func within(tb testing.TB, what string, got, want, share float64) {
	tb.Helper()
	if math.Abs(got-want) > share*want {
		tb.Errorf("%s is %v, want %v ± %v %%", what, got, want, 100*share)
	}
}

func TestEveryKindOfLoadRuns(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a", "b")
	for _, kind := range Kinds() {
		for _, rate := range []float64{0, 500} {
			if kind == Bulk && rate > 0 {
				continue
			}
			run := mustRun(t, Spec{Kind: kind, Targets: targets, Rate: rate, Duration: time.Second, WarmUp: 50 * time.Millisecond, Connections: 8})
			if kind != Packets || rate > 0 { // as many packets as go are more than arrive
				wantNoErrors(t, run)
			}
			if run.PerSecond() < 100 {
				t.Errorf("%s at rate %v: %v a second", kind, rate, run.PerSecond())
			}
			if kind != Connect && (len(run.Backends) != 2 || run.Backends[0].Name != "a" || run.Backends[1].Choices == 0) {
				t.Errorf("%s: backends are %v", kind, run.Backends)
			}
		}
	}
}
