package load

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// Runner is what runs a load: Run, or the method of a Client.
type Runner func(ctx context.Context, spec Spec, started func(counting time.Time)) (result.Run, error)

// actionLimit is how long an action may go on when the load is over.
const actionLimit = 5 * time.Second

// Failed begins the detail of the event of an action that failed.
const Failed = "failed: "

// Action is something that is done to what is measured, while it is measured.
type Action struct {
	At   time.Duration // after counting has begun
	Name string
	// Do does it, and returns what came of it.
	Do func(ctx context.Context) (string, error)
}

// RunWith runs a load and does each action in its time. They are the events of
// the run. Those that are not due before it ends are not done; one that fails
// says so in its event.
func RunWith(ctx context.Context, run Runner, spec Spec, actions []Action) (result.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, end := context.WithCancel(ctx) // only of actions that are still to come
	defer end()
	var mutex sync.Mutex
	var events []result.Event
	var doing sync.WaitGroup
	r, err := run(ctx, spec, func(counting time.Time) {
		for _, a := range actions {
			doing.Go(func() {
				if !sleepUntil(over, counting.Add(a.At)) {
					return
				}
				e := a.do(ctx, counting)
				mutex.Lock()
				defer mutex.Unlock()
				events = append(events, e)
			})
		}
	})
	end()
	timer := time.AfterFunc(actionLimit, cancel)
	defer timer.Stop()
	doing.Wait()
	slices.SortFunc(events, func(a, b result.Event) int { return int(a.At - b.At) })
	r.Events = append(r.Events, events...)
	return r, err
}

func (a Action) do(ctx context.Context, counting time.Time) result.Event {
	began := time.Now()
	detail, err := a.Do(ctx)
	if err != nil {
		detail = Failed + err.Error()
	}
	return result.Event{At: began.Sub(counting), Took: time.Since(began), Name: a.Name, Detail: detail}
}

// sleepUntil says whether the time came before ctx was done.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
