package manifest

import "time"

// timing says how long to wait for what.
type timing struct {
	debounce time.Duration // quiet before a changed file is read
	settle   time.Duration // quiet before something missing is believed
	poll     time.Duration // between looks at all files, without any event
}

// patience is how many times as long a file is waited for that is never quiet.
const patience = 100

// defaultTiming is what suits people and programs.
//
// Saving is several steps, and each is an event: a file is emptied and then
// written, or moved away before its successor comes. The debounce is what every
// change waits; settle is for what looks like the midst of a save.
func defaultTiming() timing {
	return timing{
		debounce: 2 * time.Millisecond,
		settle:   50 * time.Millisecond,
		poll:     2 * time.Second,
	}
}

// wait is a file that is to be read.
type wait struct {
	first time.Time // when it was noticed
	last  time.Time // when it was touched last
	quiet time.Duration
}

// queue holds the files that are to be read.
type queue struct {
	timing
	waits map[string]*wait
	wake  time.Time // not after the first file is due, zero where none waits
}

// touch notes that a file was changed.
func (q *queue) touch(name string, now time.Time) {
	w := q.waits[name]
	if w == nil {
		w = &wait{first: now}
		q.waits[name] = w
	}
	w.last, w.quiet = now, q.debounce
	q.wakeBy(q.due(w))
}

func (q *queue) wakeBy(t time.Time) {
	if q.wake.IsZero() || t.Before(q.wake) {
		q.wake = t
	}
}

// due returns when a file is to be read.
func (q *queue) due(w *wait) time.Time {
	due := w.last.Add(w.quiet)
	if limit := w.first.Add(patience * w.quiet); limit.Before(due) {
		return limit
	}
	return due
}

// ready returns the files that are due, in no order.
func (q *queue) ready(now time.Time) []string {
	var names []string
	for name, w := range q.waits {
		if !q.due(w).After(now) {
			names = append(names, name)
		}
	}
	return names
}

// putOff makes a file wait until nothing has touched it for longer, and returns
// false where it has waited that long.
func (q *queue) putOff(name string, touched, now time.Time) bool {
	w := q.waits[name]
	if touched.After(w.last) {
		w.last = touched
	}
	w.quiet = q.settle
	return q.due(w).After(now)
}

// done forgets a file that has been dealt with.
func (q *queue) done(name string) { delete(q.waits, name) }

// rest sets the time to wake for what still waits.
func (q *queue) rest() {
	q.wake = time.Time{}
	for _, w := range q.waits {
		q.wakeBy(q.due(w))
	}
}
