package reconciler

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAChangeDoesNotWaitForSocketsToBeTold(t *testing.T) {
	inBubble(t, &fake{tells: time.Second}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2, 3, 4))
		pass(2 * time.Second)
		b.Update(web(1, 2, 3, 4))
		synctest.Wait()
		b.dp.taken()
		pass(100 * time.Millisecond)
		b.Update(web(2, 1))
		synctest.Wait()
		want(t, "frontends while sockets are told", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, b.dp.frontends())
		b.Update(web(1, 3, 4))
		synctest.Wait()
		b.Update(web(1, 4))
		pass(time.Minute)
		want(t, "told next, together", []string{"3.03s lost 10.244.1.2:8080/TCP", "3.03s lost 10.244.1.3:8080/TCP"}, b.dp.lost())
	})
}

// What is kept of all sockets is looked through for each telling.
func TestSocketsAreNotToldOfEachOfManyLosses(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 0))
		b.dp.taken()
		for n := range byte(200) {
			b.Update(web(1, n+1))
			pass(5 * time.Millisecond)
		}
		pass(time.Second)
		lost := b.dp.lost()
		want(t, "losses", 200, len(lost))
		want(t, "the first", "0s lost 10.244.1.0:8080/TCP", lost[0])
		times := map[string]bool{}
		for _, l := range lost {
			at, _, _ := strings.Cut(l, " ")
			times[at] = true
		}
		if n := len(times); n > 35 {
			t.Errorf("sockets are told %d times in a second, want 34: every 30 ms", n)
		}
	})
}

func TestSocketsAreToldOnlyWhenTheMapsAreRight(t *testing.T) {
	var broken atomic.Bool
	dp := &fake{tells: time.Second, fail: func(call string) error {
		if broken.Load() && call == "attach" {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2, 3))
		b.Update(web(1, 2, 3))
		synctest.Wait()
		broken.Store(true)
		b.Update(web(1, 3)) // cannot be brought in while sockets are told of the one before
		pass(10 * time.Second)
		want(t, "told before", []string{"1s lost 10.244.1.1:8080/TCP"}, dp.lost())
		broken.Store(false)
		pass(time.Minute)
		want(t, "told after", []string{"13s lost 10.244.1.2:8080/TCP"}, dp.lost())
	})
}

func TestAnAgentTellsAllSocketsBeforeItEnds(t *testing.T) {
	inBubble(t, &fake{tells: time.Second}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2, 3))
		pass(2 * time.Second)
		b.Update(web(1, 2, 3))
		synctest.Wait()
		b.Update(web(1, 3))
		synctest.Wait()
		b.end()
		<-b.ended
		want(t, "told", []string{"2s lost 10.244.1.1:8080/TCP", "3s lost 10.244.1.2:8080/TCP"}, b.dp.lost())
	})
}

// The one before it may have died between the maps and the sockets.
func TestAnAgentThatStartsTellsTheSocketsOfAnyLostBackend(t *testing.T) {
	dp := inForce(t, web(1, 1))
	dp.any.Store(0)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.Update(lb.Update{})
		pass(time.Minute)
		want(t, "before the first picture is whole", int64(0), dp.any.Load())
		b.begin(web(1, 1))
		b.Update(web(1, 1, 2))
		pass(time.Hour)
		want(t, "in an hour", int64(1), dp.any.Load())
	})
}
