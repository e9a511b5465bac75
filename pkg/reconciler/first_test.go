package reconciler

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// largeFirst is Services enough for several pieces.
const largeFirst = 2000

func TestALargeFirstPictureIsWrittenWhileItIsPlanned(t *testing.T) {
	inBubble(t, &fake{loads: time.Second, room: roomFor(1)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, largeFirst))
		b.wantFleet(t, largeFirst, 1)
		ops := len(b.dp.ops)
		if b.dp.most > 2*pieceOps || b.dp.most == 0 || ops < 3*pieceOps {
			t.Errorf("%d operations, up to %d of them at once", ops, b.dp.most)
		}
		want(t, "programs were loaded beside", int64(1), b.dp.loaded.Load())
		pass(time.Minute)
		want(t, "preparations", int64(0), b.dp.prepared.Load())
		b.dp.most = 0
		b.Update(fleet(largeFirst, 2*largeFirst))
		pass(time.Minute)
		b.wantFleet(t, 2*largeFirst, int(b.dp.grown.Load()))
		if b.dp.most <= 2*pieceOps {
			t.Errorf("%d operations of a later update at once, want all", b.dp.most)
		}
		want(t, "programs were loaded beside, in all", int64(1), b.dp.loaded.Load())
	})
}

func TestASmallFirstPictureIsWrittenAtOnce(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, firstLarge-1))
		b.wantFleet(t, firstLarge-1, 0)
		want(t, "operations at once", len(b.dp.ops), b.dp.most)
		want(t, "programs were loaded beside", int64(0), b.dp.loaded.Load())
	})
}

func TestAPieceThatFailsIsWrittenAgain(t *testing.T) {
	dp, fails := &fake{}, 2
	dp.fail = func(call string) error {
		switch {
		case call == "load":
			return errors.New("no programs")
		case strings.HasPrefix(call, "put frontend") && fails > 0:
			fails--
			return errors.New("cannot allocate memory")
		default:
			return nil
		}
	}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, largeFirst))
		want(t, "it is ready", false, b.isReady())
		pass(firstRetry)
		want(t, "it is ready later", true, b.isReady())
		b.wantFleet(t, largeFirst, 0)
		if err := b.dp.content().Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsInForceFromBeforeIsNoFirstPicture(t *testing.T) {
	dp := &fake{}
	inBubble(t, dp, func(_ *testing.T, b *bench) { b.begin(fleet(0, largeFirst)) })
	again := &fake{Model: dp.Model}
	inBubble(t, again, func(t *testing.T, b *bench) {
		b.begin(fleet(0, largeFirst))
		want(t, "it is ready", true, b.isReady())
		want(t, "programs were loaded beside", int64(0), b.dp.loaded.Load())
		want(t, "operations", 0, len(b.dp.ops))
	})
}

// Where the limits leave no room for all, those get some that would if it were written at once.
func TestPiecesAreAsAllAtOnce(t *testing.T) {
	limits := plan.Sizes{Frontends: largeFirst / 2}
	var got []lb.ServiceName
	inBubbleOf(t, limits, &fake{}, func(_ *testing.T, b *bench) {
		b.begin(fleet(0, largeFirst))
		got = b.planner.Services()
	})
	p := plan.New(limits)
	st := lb.NewState()
	names := st.Apply(fleet(0, largeFirst))
	for _, name := range names {
		p.Ask(name, st.Frontends(name))
	}
	for _, name := range names {
		_, _ = p.Set(name, st.Frontends(name))
	}
	if !slices.Equal(got, p.Services()) {
		t.Errorf("%d Services are in force, want %d", len(got), len(p.Services()))
	}
}
