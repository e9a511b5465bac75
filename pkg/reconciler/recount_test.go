package reconciler

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionsAreCountedFromTimeToTime(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		pass(recountEvery - time.Second)
		want(t, "recounts once programs were replaced", int64(1), b.dp.recounts.Load())
		pass(10 * recountEvery)
		want(t, "recounts after ten periods", int64(11), b.dp.recounts.Load())
	})
}

func TestAChangeDoesNotWaitForARecount(t *testing.T) {
	inBubble(t, &fake{counts: 4 * recountEvery}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		pass(recountEvery + lookEvery)
		want(t, "recounts under way", int64(1), b.dp.recounts.Load())
		b.Update(web(2, 1))
		synctest.Wait()
		want(t, "frontends meanwhile", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, b.dp.frontends())
		pass(2 * recountEvery)
		want(t, "recounts before that one has ended", int64(1), b.dp.recounts.Load())
		b.end()
		<-b.ended
	})
}
