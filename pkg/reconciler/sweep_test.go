package reconciler

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAChangeDoesNotWaitForAGracePeriod(t *testing.T) {
	inBubble(t, &fake{grace: 20 * time.Millisecond}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2))
		b.Update(web(1, 2))
		pass(sweepAfter) // the period has begun
		b.dp.taken()
		b.Update(web(1, 2, 3))
		pass(0)
		calls := b.dp.taken()
		if !slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "1s put frontend ") }) {
			t.Errorf("calls while a grace period passes: %q", calls)
		}
		b.Update(web(1, 2)) // what goes now waits for the next period
		pass(0)
		b.dp.taken()
		pass(20 * time.Millisecond)
		want(t, "after it", []string{"1.02s reserve", "1.02s clear backend 1", "1.02s attach"}, b.dp.taken())
		pass(time.Minute)
		want(t, "after the next", []string{"2.02s grace", "2.04s reserve", "2.04s clear backend 3", "2.04s attach"}, b.dp.taken())
	})
}

// A program may find what is planned to go, but is still there: a grace period
// that begins before it goes does not clear it.
func TestASweepLeavesWhatCouldNotBeTakenAway(t *testing.T) {
	var broken atomic.Bool
	dp := &fake{fail: func(call string) error {
		if broken.Load() && strings.HasPrefix(call, "put frontend") {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		b.Update(web(1, 2)) // 1 retires, and the timer runs
		pass(sweepAfter / 2)
		broken.Store(true)
		b.Update(web(1, 3)) // 2 is to go and cannot
		pass(2 * sweepAfter)
		want(t, "in force", map[string][]string{"10.96.0.1:80/TCP": {"10.244.1.2:8080/TCP"}}, backendsOf(b.dp.content()))
		if err := b.dp.content().Check(); err != nil {
			t.Error(err)
		}
		broken.Store(false)
		pass(time.Minute)
		want(t, "backends", 1, b.dp.backends())
	})
}

func TestWithoutGracePeriodsChangesGoOnAndNothingIsCleared(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	dp := &fake{fail: func(call string) error {
		if broken.Load() && call == "grace" {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(lb.Update{})
		for n := range byte(20) {
			b.Update(web(1, n+1))
			pass(time.Second)
		}
		want(t, "backends", 20, b.dp.backends())
		want(t, "warnings", 1, b.log.FilterMessageSnippet("wait for the grace period").Len())
		broken.Store(false)
		pass(time.Minute)
		want(t, "backends once they pass", 1, b.dp.backends())
	})
}
