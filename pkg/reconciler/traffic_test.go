package reconciler

import "testing"

func TestTrafficIsAddedUpWithEachLook(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		before := b.dp.sums.Load()
		pass(10 * lookEvery)
		want(t, "times within ten looks", int64(10), b.dp.sums.Load()-before)
	})
}

func TestTrafficIsNotAddedUpTwiceAtATime(t *testing.T) {
	inBubble(t, &fake{adds: 5*lookEvery + lookEvery/2}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		pass(5 * lookEvery)
		want(t, "times while the first one is under way", int64(1), b.dp.sums.Load())
		pass(2 * lookEvery)
		want(t, "times once it has ended", int64(2), b.dp.sums.Load())
		b.end()
		<-b.ended
	})
}
