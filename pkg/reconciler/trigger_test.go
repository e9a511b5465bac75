package reconciler

import (
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// triggers notes the triggers of attempts that succeeded.
type triggers struct {
	blind
	seen []time.Time
}

func (o *triggers) Flushed(a Attempt) {
	for _, t := range a.Batch.Triggers {
		o.seen = append(o.seen, t.At)
	}
}

// slice is an update of the slice of web(1) that says when it was triggered.
func slice(at time.Time, endpoints ...byte) lb.Update {
	u := web(1, endpoints...)
	u.Services = nil
	for _, s := range u.Slices {
		s.LastChangeTrigger = at
	}
	return u
}

func TestATriggerIsMeasuredOnce(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		began, o := b.began, &triggers{}
		b.observer = o
		b.begin(web(1, 1))
		at := func(after time.Duration, endpoints ...byte) {
			b.Update(slice(began.Add(after), endpoints...))
			pass(time.Second)
		}
		at(-time.Hour, 1, 2)            // before we began
		at(0, 1, 2, 3)                  // as we began
		at(time.Second, 1, 2)           // counts
		pass(time.Hour)                 // and then something without a trigger of its own
		at(time.Second, 1, 2, 3)        // changes the slice
		at(-time.Minute, 1)             // a clock that is behind
		at(24*time.Hour, 1, 2)          // counts: a clock that is ahead
		at(2*time.Hour, 1, 2, 3)        // counts: one that is not
		b.Update(slice(time.Time{}, 1)) // says nothing
		pass(time.Second)
		var got []time.Duration
		for _, s := range o.seen {
			got = append(got, s.Sub(began))
		}
		want(t, "triggers", []time.Duration{time.Second, 24 * time.Hour, 2 * time.Hour}, got)
	})
}
