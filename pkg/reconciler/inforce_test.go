package reconciler

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// keepNothing has what is drained live as long as the agent.
func keepNothing(lb.Drained) error { return nil }

// wantError checks that somebody was told what is in the way.
func wantError(t *testing.T, what, want string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: the error is %v, not of %q", what, err, want)
	}
}

func TestWhoDrainsHearsThatTheKernelRefuses(t *testing.T) {
	var broken atomic.Bool
	dp := &fake{fail: func(string) error {
		if broken.Load() {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.KeepDrained(lb.Drained{}, keepNothing)
		one := drainOne(t, "10.244.1.1:8080/TCP")
		b.begin(web(1, 1, 2))
		broken.Store(true)
		_, err := b.Drain(t.Context(), inTime, one, false)
		wantError(t, "drain", "not in force yet: out of order", err)
		broken.Store(false)
		dp.taken()
		pass(firstRetry)
		want(t, "it is in force after the next try", true, len(dp.taken()) > 0)
		_, err = b.Drain(t.Context(), inTime, one, false)
		want(t, "error then", nil, err)
	})
}

func TestWhoDrainsWaitsForTheSweepThatChangesWaitFor(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.KeepDrained(lb.Drained{}, keepNothing)
		b.begin(fleet(0, 100))
		b.Update(moved(fleet(0, 50)))
		synctest.Wait()
		one := drainOne(t, "10.0.3.0:8080/TCP") // of a Service that does not change
		ctx, cancel := context.WithTimeout(t.Context(), graceTakes/4)
		defer cancel()
		_, err := b.Drain(ctx, inTime, one, false)
		wantError(t, "who does not wait", "not in force yet: context deadline exceeded", err)
		b.dp.taken()
		_, err = b.Drain(t.Context(), inTime, one, false) // once more
		want(t, "error", nil, err)
		want(t, "it took", graceTakes.String(), time.Since(b.dp.began).String())
		want(t, "it was written", true, len(b.dp.taken()) > 0)
	})
}

func TestWhoDrainsHearsThatTheAgentEnds(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.KeepDrained(lb.Drained{}, keepNothing)
		b.begin(fleet(0, 100))
		b.Update(moved(fleet(0, 50)))
		synctest.Wait()
		time.AfterFunc(graceTakes/2, b.end)
		_, err := b.Drain(t.Context(), inTime, drainOne(t, "10.0.3.0:8080/TCP"), false)
		wantError(t, "drain", "not in force yet: the agent ends", err)
		<-b.ended
	})
}

func TestWhoDrainsHearsThatAServiceStaysAsItIs(t *testing.T) {
	dp := &fake{}
	inBubble(t, dp, func(_ *testing.T, b *bench) { b.begin(web(1, 1, 2)) })
	inBubble(t, dp, func(t *testing.T, b *bench) {
		one := drainOne(t, "10.244.1.1:8080/TCP")
		b.KeepDrained(lb.Drained{}, keepNothing)
		_, err := b.Undrain(t.Context(), inTime, one)
		want(t, "error before the first picture", errNotReady.Error(), err.Error())
		unread := lb.Update{Slices: web(1, 1, 2).Slices, Frozen: map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}}
		b.begin(unread)
		for _, again := range []string{"drain", "drain again"} {
			_, err := b.Drain(t.Context(), inTime, one, false)
			wantError(t, again, "not in force yet: default/web-1 stays as it is", err)
		}
		b.Update(web(1, 1, 2))
		_, err = b.Drain(t.Context(), inTime, one, false)
		want(t, "error once it can be read", nil, err)
	})
}
