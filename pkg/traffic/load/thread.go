package load

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time that a thread uses within a window.
type threadTime struct {
	before, after time.Duration
	begun, ended  bool
}

// look notes the time when the window has begun, and when it has ended.
func (t *threadTime) look(now int64, w window) {
	if !t.begun && now >= w.begin {
		t.before, t.begun = threadCPU(), true
		t.after = t.before
	}
	if t.begun && !t.ended && now >= w.end {
		t.after, t.ended = threadCPU(), true
	}
}

func (t *threadTime) used() time.Duration { return t.after - t.before }

// threadCPU returns the CPU time of this thread so far.
func threadCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// onThread runs f on a thread of its own that wakes up in time, bound to the
// index-th CPU of those it may use if it is to be bound.
func onThread(index int, bind bool, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The usual slack, 50 µs, would be in every latency.
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set timer slack: %w", err)
		}
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }()
	}
	if !bind {
		return f()
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("look which CPUs there are: %w", err)
	}
	one := nthCPU(before, index)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind a sender to its CPU: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return f()
}

// nthCPU returns the set of one CPU: the index-th of a set, round and round.
func nthCPU(set unix.CPUSet, index int) unix.CPUSet {
	index %= max(set.Count(), 1)
	var one unix.CPUSet
	for cpu := range 64 * len(set) {
		if !set.IsSet(cpu) {
			continue
		}
		if index == 0 {
			one.Set(cpu)
			break
		}
		index--
	}
	return one
}
