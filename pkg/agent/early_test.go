package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/pkg/lb"
)

// earlySource is a source that says something at once and ends with an error, or with
// its context.
type earlySource struct {
	updates []lb.Update
	err     error
	said    int
}

func (s *earlySource) Run(ctx context.Context, update func(lb.Update)) error {
	for _, u := range s.updates {
		update(u)
		s.said++
	}
	if s.err != nil {
		return s.err
	}
	<-ctx.Done()
	return nil
}

func TestASourceThatBeginsEarlyLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &earlySource{updates: []lb.Update{{Partial: true}, {}, {Partial: true}}}
		e := begin(ctx, s)
		synctest.Wait()
		if s.said != 0 {
			t.Errorf("%d updates were taken before anybody asked", s.said)
		}
		var got []bool
		done := make(chan error)
		go func() { done <- e.Run(ctx, func(u lb.Update) { got = append(got, u.Partial) }) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("error %v at the end of the context", err)
		}
		<-e.ended
		if len(got) != 3 || !got[0] || got[1] || !got[2] {
			t.Errorf("got %v, want all three in order", got)
		}
	})
}

func TestASourceThatBeginsEarlyAndFailsSaysSo(t *testing.T) {
	want := errors.New("no such folder")
	e := begin(t.Context(), &earlySource{err: want})
	if err := e.Run(t.Context(), func(lb.Update) {}); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestWhoTakesNoMoreNeedNotWaitForTheSource(t *testing.T) {
	e := begin(t.Context(), &earlySource{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx, func(lb.Update) {}); err != nil {
		t.Error(err)
	}
}

func TestASourceThatNobodyTakesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := begin(ctx, &earlySource{updates: []lb.Update{{}}})
		synctest.Wait()
		cancel()
		<-e.ended
	})
}
