package reconciler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// draining is web(n) with a drain time.
func draining(d time.Duration, n byte, endpoints ...byte) lb.Update {
	u := web(n, endpoints...)
	for _, s := range u.Services {
		s.DrainTime = d
	}
	return u
}

// lost returns the calls that told sockets, since it was last asked.
func (f *fake) lost() (out []string) {
	for _, call := range f.taken() {
		if strings.Contains(call, " lost ") {
			out = append(out, call)
		}
	}
	return out
}

func TestSocketsAreToldWhenTheirBackendIsDrained(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(draining(time.Minute, 1, 1, 2, 3))
		b.Update(draining(time.Minute, 1, 2, 3))
		pass(20 * time.Second)
		b.Update(draining(time.Minute, 1, 3))
		pass(10 * time.Minute)
		want(t, "told", []string{"1m0s lost 10.244.1.1:8080/TCP", "1m20s lost 10.244.1.2:8080/TCP"}, b.dp.lost())
		b.Update(draining(time.Minute, 1))
		b.Update(without(1))
		pass(10 * time.Minute)
		want(t, "told after the Service", []string{"10m22.1s lost 10.244.1.3:8080/TCP"}, b.dp.lost())
	})
}

// thatDrains returns a datapath of which the first of two backends drains.
func thatDrains(t *testing.T) *fake {
	t.Helper()
	dp := &fake{}
	inBubble(t, dp, func(_ *testing.T, b *bench) {
		b.begin(draining(time.Hour, 1, 1, 2))
		b.Update(draining(time.Hour, 1, 2))
		pass(time.Minute)
	})
	dp.calls, dp.ops = nil, nil
	return dp
}

func TestAnAgentThatStartsLetsBackendsDrain(t *testing.T) {
	dp := thatDrains(t)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(draining(time.Hour, 1, 2))
		pass(59 * time.Minute)
		want(t, "told before", []string(nil), b.dp.lost())
		pass(2 * time.Minute)
		want(t, "told", []string{"1h0m0s lost 10.244.1.1:8080/TCP"}, b.dp.lost())
	})
	dp = thatDrains(t)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 2)) // the annotation is gone
		want(t, "told at once", []string{"0s lost 10.244.1.1:8080/TCP"}, b.dp.lost())
	})
}

// What drains has left, whatever becomes of the other backends; and nobody looks at a
// Service over and over that keeps them.
func TestAServiceThatKeepsItsBackendsDrains(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(draining(time.Minute, 1, 1, 2))
		b.Update(draining(time.Minute, 1, 2))
		synctest.Wait()
		frozen := lb.Update{FrozenEndpoints: map[lb.ServiceName]bool{}}
		for name := range web(1).Services {
			frozen.FrozenEndpoints[name] = true
		}
		frozen.Slices = without(1).Slices // the only one has become one that was never good
		b.Update(frozen)
		pass(2 * time.Minute)
		want(t, "told", []string{"1m0s lost 10.244.1.1:8080/TCP"}, b.dp.lost())
		pass(time.Hour)
		want(t, "calls in an hour", 0, len(b.dp.taken()))
		want(t, "backends", 1, b.dp.backends())
		b.Update(lb.Update{}) // the slice is gone: they drain
		pass(time.Minute)
		want(t, "told of the other one", []string{"1h3m0s lost 10.244.1.2:8080/TCP"}, b.dp.lost())
	})
}

func TestABackendIsDrainedThoughASliceIsBad(t *testing.T) {
	dp := &fake{}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(draining(time.Hour, 1, 1, 2))
		b.Update(draining(time.Hour, 1, 1))
		pass(time.Minute)
		u := draining(time.Hour, 1, 1)
		u.FrozenEndpoints = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		b.Update(u)
		pass(time.Minute)
		want(t, "backends while one drains", 2, dp.backends())
		pass(2 * time.Hour)
		want(t, "backends after that", 1, dp.backends())
	})
}
