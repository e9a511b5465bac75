package traffic

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Run does job in this process, in the network namespace that it is in, and
// adds to done what is finished. Cancelling ctx ends it early: that is no
// error, the result is what was finished by then.
func Run(ctx context.Context, job Job, done *atomic.Int64) (Result, error) {
	job = job.withDefaults()
	exchange := exchanges[job.Kind]
	if exchange == nil {
		return Result{}, fmt.Errorf("run job: unknown kind %q", job.Kind)
	}
	if len(job.Targets) == 0 {
		return Result{}, fmt.Errorf("run job: no targets")
	}
	results := make([]Result, job.Workers)
	schedule := newSchedule(job)
	var workers sync.WaitGroup
	for i := range results {
		workers.Go(func() {
			runtime.LockOSThread()
			w := &worker{job: job, exchange: exchange, result: newResult(job), done: done}
			w.run(ctx, schedule)
			results[i] = w.result
			runtime.UnlockOSThread()
		})
	}
	workers.Wait()
	total := newResult(job)
	for _, result := range results {
		total.merge(result)
	}
	return total, nil
}

// worker is one closed loop.
type worker struct {
	job      Job
	exchange exchange
	result   Result
	done     *atomic.Int64
	buffer   [256]byte
}

func (w *worker) run(ctx context.Context, schedule *schedule) {
	for range w.job.WarmUp {
		if ctx.Err() != nil {
			return
		}
		warm := *w
		warm.result = newResult(w.job)
		warm.exchange(&warm, 0, 1)
	}
	for {
		first, count := schedule.next(ctx)
		if count == 0 {
			return
		}
		w.exchange(w, first/w.job.PerSocket%len(w.job.Targets), count)
		w.done.Add(int64(count))
	}
}

func (w *worker) answered(target int, name string) { w.result.Tallies[target].Answers[name]++ }

func (w *worker) failed(target, count int, err error) {
	w.result.Tallies[target].Failures[err.Error()] += count
}

// schedule hands out the exchanges of a job to its workers.
type schedule struct {
	job   Job
	start time.Time
	given atomic.Int64
}

func newSchedule(job Job) *schedule { return &schedule{job: job, start: time.Now()} }

// next returns the number of the next exchange, and how many there are to do
// in one go: none when the job is over. With a rate it waits for its time.
func (s *schedule) next(ctx context.Context) (first, count int) {
	step := s.job.PerSocket
	first = int(s.given.Add(int64(step))) - step
	if s.job.Count > 0 {
		step = min(step, s.job.Count-first)
	}
	if s.job.Rate > 0 {
		due := s.start.Add(time.Duration(first) * time.Second / time.Duration(s.job.Rate))
		sleep(ctx, time.Until(due))
	}
	if step <= 0 || ctx.Err() != nil {
		return 0, 0
	}
	return first, step
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func newResult(job Job) Result {
	result := Result{Tallies: make([]Tally, len(job.Targets))}
	for i, target := range job.Targets {
		result.Tallies[i] = Tally{Target: target, Answers: map[string]int{}, Failures: map[string]int{}}
	}
	return result
}

// merge adds what another worker did of the same job.
func (r *Result) merge(other Result) {
	for i := range other.Tallies {
		addCounts(r.Tallies[i].Answers, other.Tallies[i].Answers)
		addCounts(r.Tallies[i].Failures, other.Tallies[i].Failures)
	}
	r.Nanos = append(r.Nanos, other.Nanos...)
}

func addCounts(to, from map[string]int) {
	for key := range maps.Keys(from) {
		to[key] += from[key]
	}
}
