package reconciler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// watchful is a datapath that finds connections that stand.
type watchful struct {
	fake
	looked atomic.Int64
}

func (w *watchful) NoteStanding() error {
	w.looked.Add(1)
	return errors.New("no such namespace")
}

func TestConnectionsThatStandAreLookedForEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp := &watchful{}
		r, err := New(zap.NewNop(), NewInbox(nil), dp, plan.Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		pass(10*time.Second + time.Millisecond)
		if got := dp.looked.Load(); got != 10 {
			t.Errorf("they were looked for %d times in ten seconds, want 10", got)
		}
	})
}
