package result

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Drill is an event that a run was about, and what came of it. Its times are from
// the event on.
type Drill struct {
	Kind string        `json:"kind"`
	At   time.Duration `json:"at_ns"`   // after counting began
	Took time.Duration `json:"took_ns"` // until the command ended, or the file was written
	// LastOld is when the last connection was begun that reached the backend
	// which was taken away, 0 if that was before the event. FirstNew is when the
	// first one was begun that reached the backend in its place. Absent: there
	// was none, ever.
	LastOld  *time.Duration `json:"last_old_ns,omitempty"`
	FirstNew *time.Duration `json:"first_new_ns,omitempty"`
	// Failed are the operations that failed from then on, LastFailed when the
	// last of them was due. Slow are those of the run that took longer than
	// SlowFrom, Broken its established connections that were lost.
	Failed     uint64        `json:"failed"`
	LastFailed time.Duration `json:"last_failed_ns,omitempty"`
	Slow       uint64        `json:"slow"`
	SlowFrom   time.Duration `json:"slow_from_ns"`
	Broken     uint64        `json:"broken_connections"`
}

// SetDrill notes what came of an event: see Drill. The backends are those that was
// taken away and that came in its place, "" for none.
func (r *Run) SetDrill(kind string, e Event, old, replacement string, slowFrom time.Duration) {
	d := &Drill{Kind: kind, At: e.At, Took: e.Took, SlowFrom: slowFrom, Broken: r.Broken}
	if b, ok := r.backend(old); ok {
		last := max(b.Last-e.At, 0)
		d.LastOld = &last
	}
	if b, ok := r.backend(replacement); ok && b.First != nil {
		first := max(*b.First-e.At, 0)
		d.FirstNew = &first
	}
	for _, p := range r.TimeLine {
		if p.At+r.Interval > e.At {
			d.Failed += p.Failed
		}
	}
	if d.Failed > 0 {
		d.LastFailed = r.LastFailed - e.At
	}
	if r.Latency != nil {
		for _, b := range r.Latency.Buckets() {
			if b.UpTo > slowFrom {
				d.Slow += b.Count
			}
		}
	}
	r.Drill = d
}

// backend returns what came from a server, if a socket chose it.
func (r *Run) backend(name string) (Backend, bool) {
	i := slices.IndexFunc(r.Backends, func(b Backend) bool { return b.Name == name && b.Choices > 0 })
	if i < 0 {
		return Backend{}, false
	}
	return r.Backends[i], true
}

// add adds the counts of another round: times of several are none.
func (d *Drill) add(other *Drill) *Drill {
	if other == nil {
		return d
	}
	if d == nil {
		d = &Drill{Kind: other.Kind, SlowFrom: other.SlowFrom}
	}
	d.Failed += other.Failed
	d.Slow += other.Slow
	d.Broken += other.Broken
	return d
}

// String is the outcome in a line.
func (d *Drill) String() string {
	if d == nil {
		return ""
	}
	parts := []string{fmt.Sprintf("%s at %s", d.Kind, short(d.At))}
	if d.LastOld != nil {
		parts = append(parts, fmt.Sprintf("the last connection to the old backend %s after", short(*d.LastOld)))
	}
	if d.FirstNew != nil {
		parts = append(parts, fmt.Sprintf("the first to the new one %s after", short(*d.FirstNew)))
	}
	failed := fmt.Sprintf("%d failed", d.Failed)
	if d.Failed > 0 {
		failed += fmt.Sprintf(" (the last was due %s after)", short(d.LastFailed))
	}
	return strings.Join(append(parts, failed, fmt.Sprintf("%d slower than %s", d.Slow, short(d.SlowFrom)), fmt.Sprintf("%d broken", d.Broken)), ", ")
}

// Churn is how often Services were changed during a run.
type Churn struct {
	Rate    float64       `json:"asked_per_second"`
	Changes uint64        `json:"changes"`
	Elapsed time.Duration `json:"elapsed_ns"` // in which they were made, warm-up included
}

// PerSecond returns how many changes a second there were.
func (c *Churn) PerSecond() float64 {
	if c == nil || c.Elapsed <= 0 {
		return 0
	}
	return float64(c.Changes) / c.Elapsed.Seconds()
}

// String is the churn in a line.
func (c *Churn) String() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%d changes in %s, %.1f/s of %.1f/s", c.Changes, short(c.Elapsed), c.PerSecond(), c.Rate)
}

// DrillMetrics are those of drills: times from the event on, and counts of all
// rounds together.
func DrillMetrics() []Metric {
	count := func(name string, of func(*Drill) uint64) Metric {
		return Metric{Name: name, Total: true, of: ofDrill(func(d *Drill) (float64, bool) { return float64(of(d)), true })}
	}
	return []Metric{
		{Name: "last-old", Unit: "ns", of: ofDrill(func(d *Drill) (float64, bool) { return orNever(d.LastOld), d.LastOld != nil })},
		{Name: "first-new", Unit: "ns", of: ofDrill(func(d *Drill) (float64, bool) {
			return orNever(d.FirstNew), d.FirstNew != nil || d.LastOld != nil
		})},
		{Name: "last-failed", Unit: "ns", of: ofDrill(func(d *Drill) (float64, bool) { return float64(d.LastFailed), true })},
		count("failures", func(d *Drill) uint64 { return d.Failed }),
		count("slow", func(d *Drill) uint64 { return d.Slow }),
		count("broken", func(d *Drill) uint64 { return d.Broken }),
	}
}

func ofDrill(of func(*Drill) (float64, bool)) func(*Run) (float64, bool) {
	return func(r *Run) (float64, bool) {
		if r.Drill == nil {
			return 0, false
		}
		return of(r.Drill)
	}
}

// orNever is a time, or one that never comes.
func orNever(d *time.Duration) float64 {
	if d == nil {
		return math.Inf(1)
	}
	return float64(*d)
}
