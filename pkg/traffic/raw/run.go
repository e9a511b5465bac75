package raw

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// sender is a way to the device.
type sender interface {
	// atOnce returns how many packets go best in one go.
	atOnce() int
	// send sends up to count packets and returns how many it took.
	send(count int) (int, error)
	close() error
}

// Run sends a flood and returns how many packets left. When ctx is cancelled it
// ends early, and returns what was sent by then: that is no error.
func Run(ctx context.Context, spec Spec) (result.Run, error) {
	return run(ctx, spec, false)
}

// Ceiling measures how many packets can be sent a second when they go nowhere:
// by a ring to a veth whose other end takes nothing, or by live frames that are dropped.
func Ceiling(ctx context.Context, spec Spec) (result.Ceiling, error) {
	spec.Rate, spec.Duration, spec.Interval = 0, 500*time.Millisecond, 0
	how := "live frames that are dropped"
	if spec.Method == Ring {
		how = "a ring to a veth whose other end takes nothing"
		if err := within(spec.Namespace, addDeadEnd); err != nil {
			return result.Ceiling{}, err
		}
	}
	r, err := run(ctx, spec, true)
	if spec.Method == Ring {
		err = errors.Join(err, within(spec.Namespace, removeDeadEnd))
	}
	if err != nil {
		return result.Ceiling{}, err
	}
	return result.Ceiling{PerSecond: r.PerSecond(), How: how}, nil
}

func run(ctx context.Context, spec Spec, drop bool) (result.Run, error) {
	if err := spec.Validate(); err != nil {
		return result.Run{}, err
	}
	spec = spec.withDefaults()
	n := spec.Senders
	f := &flood{
		spec: &spec, drop: drop, start: make(chan struct{}), points: make([][]result.Point, n),
		ended: make([]time.Duration, n), cpu: make([]time.Duration, n), errs: make([]error, n),
	}
	f.ready.Add(n)
	var running sync.WaitGroup
	for i := range spec.Senders {
		running.Go(func() { f.errs[i] = f.send(ctx, i) })
	}
	f.ready.Wait()
	f.began = time.Now()
	close(f.start)
	running.Wait()
	if err := errors.Join(f.errs...); err != nil {
		return result.Run{}, err
	}
	return f.result(ctx), nil
}

// flood is a run.
type flood struct {
	spec   *Spec
	drop   bool
	ready  sync.WaitGroup
	start  chan struct{}
	began  time.Time
	points [][]result.Point // by sender
	ended  []time.Duration  // by sender, since began
	cpu    []time.Duration  // by sender
	errs   []error
}

// send is one sender, on a thread in the namespace.
func (f *flood) send(ctx context.Context, index int) error {
	var once sync.Once
	ready := func() { once.Do(f.ready.Done) }
	defer ready() // whatever goes wrong, the others must not wait
	return within(f.spec.Namespace, func() error {
		s, err := f.open(index)
		if err != nil {
			return err
		}
		ready()
		<-f.start
		before := threadCPU()
		f.points[index], err = f.pump(ctx, s)
		f.cpu[index], f.ended[index] = threadCPU()-before, time.Since(f.began)
		return errors.Join(err, s.close())
	})
}

func (f *flood) open(index int) (sender, error) {
	r, err := findRoute(f.spec.Target.Addr())
	if err != nil {
		return nil, err
	}
	t, err := newTemplate(f.spec, r.from, r.to)
	if err != nil {
		return nil, err
	}
	if f.drop && f.spec.Method == Ring {
		if r.device, err = findDeadEnd(); err != nil {
			return nil, err
		}
	}
	if f.spec.Method == Live {
		return openLive(t, r.device, f.drop)
	}
	return openRing(t, r.device, uint64(index))
}

// pump sends until the time is over.
func (f *flood) pump(ctx context.Context, s sender) ([]result.Point, error) {
	points := make([]result.Point, f.spec.Duration/f.spec.Interval+1)
	rate := f.spec.Rate / float64(f.spec.Senders)
	sent := 0
	for ctx.Err() == nil {
		passed := time.Since(f.began)
		if passed >= f.spec.Duration {
			break
		}
		count := s.atOnce()
		if f.spec.Rate > 0 {
			if count = int(passed.Seconds()*rate) - sent; count <= 0 {
				time.Sleep(min(time.Duration(float64(1-count)/rate*1e9), f.spec.Duration-passed))
				continue
			}
		}
		n, err := s.send(min(count, s.atOnce()))
		if err != nil {
			return nil, err
		}
		sent += n
		points[passed/f.spec.Interval].Completed += uint64(n)
	}
	return points, nil
}

func (f *flood) result(ctx context.Context) result.Run {
	s := f.spec
	r := result.Run{
		Load: result.Load{
			Kind: string(s.Kind) + " by " + string(s.Method), Loop: "closed", Rate: s.Rate, Targets: []string{s.Target.String()},
			Sources: []string{s.Sources.String()}, Senders: s.Senders, Request: s.Size, Duration: s.Duration,
		},
		Started: f.began.UTC().Round(0), Elapsed: slices.Max(f.ended), Interrupted: ctx.Err() != nil, Interval: s.Interval,
	}
	if s.Rate > 0 {
		r.Load.Loop, r.Load.Arrivals = "open", "constant"
	}
	for _, used := range f.cpu {
		r.CPU += used
	}
	for i := range f.points[0] {
		p := result.Point{At: time.Duration(i) * s.Interval}
		for _, points := range f.points {
			p.Completed += points[i].Completed
		}
		p.Due = p.Completed
		r.Completed += p.Completed
		if p.At < r.Elapsed {
			r.TimeLine = append(r.TimeLine, p)
		}
	}
	r.Due, r.InTime = r.Completed, r.Completed
	if r.Completed == 0 && !r.Interrupted {
		r.ErrorExamples = map[result.ErrorKind]string{result.Other: fmt.Sprintf("no packet left by %s", s.Method)}
	}
	return r
}

// threadCPU returns the CPU time of this thread so far.
func threadCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
