package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/headgate/headgate/pkg/lb"
)

// eventPace says how often events are written.
type eventPace struct {
	burst   int           // requests that may be made at once
	rate    float32       // requests a second after that
	again   time.Duration // until a problem that stands is told again; up to twice that
	retry   time.Duration // until a request that failed is made again
	refused time.Duration // the same of one that will not do better soon
}

// The API server forgets an event after an hour. Every node may tell of the same
// Service: the pace is what all of them together may cost.
func defaultEventPace() eventPace {
	return eventPace{burst: 25, rate: 0.2, again: 20 * time.Minute, retry: 30 * time.Second, refused: 10 * time.Minute}
}

// events tells the owners of Services what is wrong with them: each problem that
// stands becomes an event on its Service. The name of the event is made of what
// it says, so that a problem that all nodes see, or one agent after the other,
// is one event in the cluster.
type events struct {
	client recorder
	pace   eventPace
	refuse func(error) // is told why events may not be written, nil once they may
	wake   chan struct{}

	mu       sync.Mutex
	standing map[lb.Problem]bool

	told map[lb.Problem]*tale // belongs to run; what is solved is in it until it would be told again
}

// tale is what was told of a problem.
type tale struct {
	event eventName
	count int32     // how often we told of it, 0 where the event is another node's
	next  time.Time // when to tell of it again
}

// recorder writes events.
type recorder interface {
	// create makes the event of a problem. Its name is zero where there is no
	// Service to tell; ours is false where there is such an event already.
	create(ctx context.Context, p lb.Problem) (at eventName, ours bool, err error)
	// repeat says how often a problem was seen, and that it still stands.
	repeat(ctx context.Context, at eventName, count int32) error
}

func newEvents(client recorder, refuse func(error)) *events {
	return &events{client: client, pace: defaultEventPace(), refuse: refuse, wake: make(chan struct{}, 1),
		standing: map[lb.Problem]bool{}, told: map[lb.Problem]*tale{}}
}

// report says everything that is wrong now. It does not wait.
func (e *events) report(problems []lb.Problem) {
	standing := map[lb.Problem]bool{}
	for _, p := range problems {
		if _, ok := subjectOf(p); ok {
			standing[p] = true
		}
	}
	e.mu.Lock()
	changed := !maps.Equal(standing, e.standing)
	e.standing = standing
	e.mu.Unlock()
	if !changed {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default: // it is being woken already
	}
}

// run tells of problems until the context ends.
func (e *events) run(ctx context.Context) {
	limit := flowcontrol.NewTokenBucketRateLimiter(e.pace.rate, e.pace.burst)
	defer limit.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
		for _, p := range e.due(time.Now()) {
			if limit.Wait(ctx) != nil {
				return
			}
			if e.stands(p) {
				e.tell(ctx, p)
			}
		}
		timer.Reset(e.rest(time.Now()))
	}
}

// due returns the problems to tell of now, in a fixed order, and forgets those
// that are solved for so long that they would be news.
func (e *events) due(now time.Time) (out []lb.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p, t := range e.told {
		if !e.standing[p] && !now.Before(t.next) {
			delete(e.told, p)
		}
	}
	for p := range e.standing {
		if t := e.told[p]; t == nil || !now.Before(t.next) {
			out = append(out, p)
		}
	}
	lb.SortProblems(out, func(a, b *lb.Problem) int { return strings.Compare(a.Error(), b.Error()) })
	return out
}

// rest returns how long there is nothing to do, unless something new comes.
func (e *events) rest(now time.Time) time.Duration {
	rest := time.Hour
	for _, t := range e.told {
		rest = min(rest, t.next.Sub(now))
	}
	return max(rest, time.Millisecond)
}

func (e *events) stands(p lb.Problem) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.standing[p]
}

// tell tells of a problem, again where it was told before.
func (e *events) tell(ctx context.Context, p lb.Problem) {
	t := e.told[p]
	if t == nil {
		t = &tale{}
		e.told[p] = t
	}
	err := e.write(ctx, p, t)
	switch {
	case err == nil:
		e.refuse(nil)
		// The jitter keeps apart the nodes that saw it in the same moment.
		t.next = time.Now().Add(e.pace.again + rand.N(e.pace.again))
	case apierrors.IsForbidden(err):
		e.refuse(err)
		t.next = time.Now().Add(e.pace.refused)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err):
		t.next = time.Now().Add(e.pace.refused)
	default:
		t.next = time.Now().Add(e.pace.retry + rand.N(e.pace.retry))
	}
}

// write creates the event, or repeats it where it is ours.
func (e *events) write(ctx context.Context, p lb.Problem, t *tale) error {
	if t.count > 0 {
		err := e.client.repeat(ctx, t.event, t.count+1)
		if err == nil {
			t.count++
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		t.count = 0 // forgotten by the server: a new one
	}
	at, ours, err := e.client.create(ctx, p)
	if err != nil {
		return err
	}
	if t.event = at; ours {
		t.count = 1
	}
	return nil
}
