package reconciler

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// diff asks for the differences, as text.
func (b *bench) diff(t *testing.T) (out []string) {
	t.Helper()
	all, err := b.Diff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		out = append(out, strings.TrimSpace(d.Service+" "+d.Write))
	}
	return out
}

func TestThereIsNoDifferenceWhileTheMapsHoldWhatSourcesSay(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		for n := range byte(5) {
			b.begin(web(n, 1, 2, n))
			b.Update(web(n, 2, 3))
			pass(time.Second)
			want(t, "differences", []string(nil), b.diff(t))
		}
		b.Update(draining(time.Hour, 1, 3))
		b.Update(without(2))
		pass(time.Second)
		want(t, "differences while a backend drains", []string(nil), b.diff(t))
		writes := len(b.dp.ops)
		b.diff(t)
		want(t, "writes by asking", writes, len(b.dp.ops))
	})
}

func TestWhatSomebodyElseHasWrittenIsADifference(t *testing.T) {
	at := lb.AddrPort{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: lb.TCP}
	for _, c := range []struct {
		name  string
		write plan.Op
		want  string
	}{
		{"a frontend is gone", plan.DeleteFrontend{Key: at}, "default/web-1 put frontend 10.96.0.1:80/TCP kind ClusterIP"},
		{"an address is gone", plan.DeleteAddress{Addr: at.Addr}, "put address 10.96.0.1 service"},
		{"an address of the node is gone", plan.DeleteAddress{Addr: netip.MustParseAddr("192.0.2.1")}, "put address 192.0.2.1 node"},
		{"prefixes are strange", plan.PutServiceCIDRs{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "put service cidrs"},
		{"a backend is gone", plan.ClearBackend{ID: 1}, "replace all maps: "},
	} {
		inBubble(t, &fake{}, func(t *testing.T, b *bench) {
			b.begin(web(1, 1, 2))
			b.dp.mu.Lock()
			b.dp.Model.Apply(c.write)
			b.dp.mu.Unlock()
			if got := strings.Join(b.diff(t), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("%s: the difference is %q, which lacks %q", c.name, got, c.want)
			}
		})
	}
}

func TestWhoAsksBeforeThereIsAnythingHearsSo(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		if _, err := b.Diff(t.Context()); !errors.Is(err, errNotReady) {
			t.Errorf("before the first picture: %v", err)
		}
		b.end()
		<-b.ended
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Diff(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when nobody listens: %v", err)
		}
	})
}

// inTime is begin of an order that comes in time.
func inTime() error { return nil }

// drainOne drains, and returns what is kept for the next agent.
func drainOne(t *testing.T, word string) lb.Drained {
	t.Helper()
	d, err := lb.ParseDrained([]string{word})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatIsDrainedIsKeptBeforeItIsInForce(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		var kept []string
		var fails error
		b.KeepDrained(lb.Drained{}, func(d lb.Drained) error {
			kept = append(kept, strings.Join(d.Words(), " "))
			return fails
		})
		one, other := drainOne(t, "10.244.1.1:8080/TCP"), drainOne(t, "10.244.1.2:8080/TCP")
		b.begin(web(1, 1, 2))
		b.dp.ops = nil
		if out, err := b.Drain(t.Context(), inTime, one, false); err != nil || len(out.Backends) != 1 || len(b.dp.ops) == 0 {
			t.Errorf("drain: %v, %v, when it was said %d operations had been applied", out, err, len(b.dp.ops))
		}
		if _, err := b.Drain(t.Context(), inTime, drainOne(t, "10.244.1.9:8080/TCP"), false); err == nil || !strings.Contains(err.Error(), "no Service has backends that are 10.244.1.9:8080/TCP") {
			t.Errorf("a backend that there is not: %v", err)
		}
		if _, err := b.Drain(t.Context(), inTime, other, false); err == nil || !strings.Contains(err.Error(), "no other backend is left to clients of default/web-1: ") {
			t.Errorf("the last backend: %v", err)
		}
		want(t, "kept", []string{"10.244.1.1:8080/TCP"}, kept)
		if out, err := b.Drain(t.Context(), inTime, other, true); err != nil || len(out.Alone) != 1 {
			t.Errorf("the last backend with force: %v, %v", out, err)
		}
		if _, err := b.Undrain(t.Context(), inTime, drainOne(t, "node/x")); err == nil || !strings.Contains(err.Error(), "node/x: is not drained") {
			t.Errorf("undrain of what is not drained: %v", err)
		}
		fails = errors.New("disk full")
		if _, err := b.Undrain(t.Context(), inTime, one); err == nil || !strings.Contains(err.Error(), "disk full") || len(b.state.Drained().Backends) != 2 {
			t.Errorf("what cannot be kept: %v, drained are %s", err, b.state.Drained().Words())
		}
		want(t, "differences", []string(nil), b.diff(t))
	})
}

func TestADrainOnTheNodeToWhichOthersCarryIsForced(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.KeepDrained(lb.Drained{}, func(lb.Drained) error { return nil })
		u := web(1, 1, 2)
		u.Node = &lb.Node{Name: "node-a"}
		for _, s := range u.Services {
			s.Forwarding = lb.DSR
		}
		for _, s := range u.Slices {
			s.Endpoints[0].Where = lb.Topology{Node: "node-a"}.Share()
		}
		b.begin(u)
		one := drainOne(t, "10.244.1.1:8080/TCP")
		if _, err := b.Drain(t.Context(), inTime, one, false); err == nil || !strings.Contains(err.Error(), "other nodes carry packets of default/web-1 to it here") || !b.state.Drained().IsEmpty() {
			t.Errorf("drain: %v, drained are %q", err, b.state.Drained().Words())
		}
		if _, err := b.Drain(t.Context(), inTime, one, true); err != nil {
			t.Errorf("drain with force: %v", err)
		}
	})
}

func TestAnOrderThatMayNotBeginChangesNothing(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.KeepDrained(drainOne(t, "10.244.1.2:8080/TCP"), func(d lb.Drained) error {
			t.Errorf("kept is %s", d.Words())
			return nil
		})
		b.begin(web(1, 1, 2, 3))
		b.dp.ops = nil
		late := errors.New("the client has given up")
		tooLate := func() error { return late }
		if _, err := b.Drain(t.Context(), tooLate, drainOne(t, "10.244.1.1:8080/TCP"), false); !errors.Is(err, late) {
			t.Errorf("drain: %v", err)
		}
		if _, err := b.Undrain(t.Context(), tooLate, drainOne(t, "10.244.1.2:8080/TCP")); !errors.Is(err, late) {
			t.Errorf("undrain: %v", err)
		}
		want(t, "drained", []string{"10.244.1.2:8080/TCP"}, b.state.Drained().Words())
		want(t, "operations", 0, len(b.dp.ops))
	})
}

func TestADrainedBackendIsForgottenOnceItWasGoneForAMinute(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.KeepDrained(drainOne(t, "10.244.1.1:8080/TCP").With(drainOne(t, "node/x")), func(lb.Drained) error { return nil })
		b.SetDevices(nil) // no picture of Services
		pass(5 * time.Minute)
		want(t, "before the first picture", 2, len(b.state.Drained().Words()))
		b.begin(web(1, 1, 2))
		pass(time.Hour)
		want(t, "while it is there", 2, len(b.state.Drained().Words()))
		b.Update(web(1, 2))
		pass(20 * time.Second)
		b.Update(web(1, 1, 2))
		pass(5 * time.Minute)
		want(t, "when it came back", 2, len(b.state.Drained().Words()))
		u := web(1, 2)
		u.Partial = true
		b.Update(u)
		pass(5 * time.Minute)
		want(t, "while something cannot be read", 2, len(b.state.Drained().Words()))
		b.Update(web(1, 2))
		pass(3 * time.Minute)
		want(t, "when it is gone", []string{"node/x"}, b.state.Drained().Words())
	})
}
